// The fuzz targets of grammars, also used by the corpus tests. They return normally or throw ingot::Error, and an
// output that follows the masks always has an allowed token.
#pragma once

#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/matcher.h"
#include "grammar/regex.h"

namespace ingot::grammar::fuzz {

inline bool refused(const Error& error) {
  if (error.kind() == ErrorKind::internal) __builtin_trap();
  return false;
}

inline std::shared_ptr<const Vocabulary> vocabulary() {
  static const auto all = [] {
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
    for (const char* word : {"{\"", "\":", "\",", "\"}", "true", "null", "10", "abc", ""}) tokens.emplace_back(word);
    return std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{264});
  }();
  return all;
}

// Follows some tokens that the masks allow, chosen by the input.
inline void follow(const GrammarPtr& grammar, std::string_view seed) {
  Matcher matcher(std::make_shared<const TokenGrammar>(grammar, vocabulary()));
  std::minstd_rand random(static_cast<uint32_t>(std::hash<std::string_view>()(seed)));
  std::vector<uint32_t> mask(vocabulary()->num_words());
  try {
    for (int step = 0; step < 24 && !matcher.finished(); ++step) {
      matcher.fill_mask(mask);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < vocabulary()->size(); ++id) {
        if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
      }
      if (allowed.empty()) __builtin_trap();
      matcher.accept(allowed[random() % allowed.size()]);
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) __builtin_trap();
  }
}

inline bool compile_schema(std::string_view text) {
  try {
    const GrammarPtr grammar = compile_json_schema(text, {.max_text = 1 << 16, .max_cases = 64, .max_schemas = 500});
    follow(grammar, text);
    return true;
  } catch (const Error& error) {
    return refused(error);
  }
}

inline bool compile_rules(std::string_view text) {
  try {
    follow(compile_ebnf(text), text);
    return true;
  } catch (const Error& error) {
    return refused(error);
  }
}

inline bool compile_pattern(std::string_view text) {
  try {
    Automaton automaton;
    const TermId language = pattern_language(automaton.terms, text);
    if (automaton.alive(language)) static_cast<void>(automaton.row(language));
    return true;
  } catch (const Error& error) {
    return refused(error);
  }
}

}  // namespace ingot::grammar::fuzz
