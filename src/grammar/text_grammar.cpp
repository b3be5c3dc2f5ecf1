// Grammars of plain texts: a regular expression, and a choice of texts.
#include "base/error.h"
#include "base/strings.h"
#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "grammar/regex.h"

namespace ingot::grammar {

namespace {

GrammarPtr grammar_of(Automaton automaton, TermId language) {
  const TermId rule = automaton.terms.declare();
  automaton.terms.define(rule, automaton.terms.unit(language));
  const TermId start = automaton.finish(rule);
  return std::make_shared<const Grammar>(std::move(automaton), start);
}

}  // namespace

GrammarPtr compile_regex(std::string_view pattern) {
  if (!is_utf8(pattern)) throw_error(ErrorKind::usage, "the regular expression is not UTF-8");
  Automaton automaton;
  const TermId language = whole_pattern_language(automaton.terms, pattern);
  if (!automaton.alive(language)) {
    throw_error(ErrorKind::usage, "the regular expression matches no text");
  }
  return grammar_of(std::move(automaton), language);
}

GrammarPtr compile_choice(std::span<const std::string> texts) {
  if (texts.empty()) throw_error(ErrorKind::usage, "the list of choices is empty");
  Automaton automaton;
  std::vector<TermId> literals;
  for (const std::string& text : texts) {
    if (!is_utf8(text)) throw_error(ErrorKind::usage, "a choice is not UTF-8");
    literals.push_back(automaton.terms.literal(text));
  }
  const TermId language = automaton.terms.choice(literals);
  return grammar_of(std::move(automaton), language);
}

}  // namespace ingot::grammar
