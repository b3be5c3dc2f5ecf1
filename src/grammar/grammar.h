// Grammars: what a model's output may be, compiled from a JSON Schema, EBNF, a regular expression or a list of texts.
//
// What is supported of both, and what is refused: docs/grammar.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace ingot::grammar {

class Automaton;

// Immutable; shared by any number of threads.
class Grammar {
 public:
  Grammar(Automaton automaton, int32_t start);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  const Automaton& automaton() const { return *automaton_; }
  int32_t start() const { return start_; }  // a term of it

 private:
  std::unique_ptr<const Automaton> automaton_;
  int32_t start_;
};

using GrammarPtr = std::shared_ptr<const Grammar>;

// White space between the tokens of JSON.
enum class Whitespace : uint8_t {
  none,       // nowhere
  formatted,  // as writers put it: at most one space, or one line end and at most 64 spaces or tabs behind it
};

struct JsonOptions {
  Whitespace whitespace = Whitespace::formatted;
  // Properties come in the order in which the schema has them, others behind them; otherwise in any order.
  bool in_order = false;
  // Keywords that the draft does not know, and formats that are not asserted, are refused; otherwise they are
  // annotations.
  bool strict = false;
  size_t max_text = 4 << 20;             // bytes of a schema
  int64_t max_cases = 4096;              // alternatives that one combination of schemas may come to
  int64_t max_schemas = 20'000;          // combinations of schemas in the whole
  double max_seconds = 30;               // looked at in each step of a combination
  double (*seconds)() = steady_seconds;  // the clock for that
};

// A schema as text, of the draft that its `$schema` names; without one of 2020-12. `unknown`, where it is given, gets
// the JSON pointers of the keywords that the draft does not know and of the formats that are not asserted, of the
// schemas that are in use. Errors: usage for what is no schema; unsupported for a keyword that is not possible in its
// place (where `strict` is set: or not known), by name, with its JSON pointer; resource beyond the limits. A schema
// without any instance is an error (usage), too.
GrammarPtr compile_json_schema(std::string_view schema, const JsonOptions& options = {},
                               std::vector<std::string>* unknown = nullptr);

// Any JSON object.
GrammarPtr any_json(const JsonOptions& options = {});

// llama.cpp's dialect (GBNF): rules `name ::= ...`, of which `root` is the whole; "literals", [classes], ., groups, |,
// * + ? {m,n}, # comments. Errors: usage for a malformed text, naming its line; unsupported for a rule that begins with
// itself, and for tokens <...>; resource.
GrammarPtr compile_ebnf(std::string_view text);

inline constexpr size_t max_pattern_bytes = 64 << 10;  // of a regular expression, as `pattern` in a schema, too

// The texts that a regular expression (grammar/regex.h has the dialect) matches from end to end. Errors: as
// pattern_language's; usage for one that matches nothing.
GrammarPtr compile_regex(std::string_view pattern);

// One of these texts. Errors: usage without any; resource.
GrammarPtr compile_choice(std::span<const std::string> texts);

}  // namespace ingot::grammar
