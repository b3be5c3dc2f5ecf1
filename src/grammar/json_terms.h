// The pieces of JSON texts as languages.
#pragma once

#include <string_view>

#include "grammar/automaton.h"
#include "grammar/grammar.h"

namespace ingot::grammar {

struct JsonTerms {
  JsonTerms(Automaton& automaton, Whitespace whitespace);

  TermId space;      // between brackets and what is inside them
  TermId colon;      // with the space behind it
  TermId comma;      // likewise
  TermId free_text;  // a string, quotes included, with every escape that JSON has

  // Strings whose text is in the language, a regular one of UTF-8, with every escape that JSON has; canonical ones: see
  // TermPool::json_text.
  TermId quoted(TermId language);
  TermId canonical(TermId language);

 private:
  TermPool& terms_;
};

}  // namespace ingot::grammar
