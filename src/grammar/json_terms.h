// The lexical elements of JSON texts as terms.
#pragma once

#include <string_view>

#include "grammar/automaton.h"
#include "grammar/grammar.h"

namespace ingot::grammar {

struct JsonTerms {
  JsonTerms(Automaton& automaton, Whitespace whitespace);

  TermId space;      // between brackets and their contents
  TermId colon;      // with the white space after it
  TermId comma;      // with the white space after it
  TermId free_text;  // any string, quotes included, with every escape of JSON

  // Strings, quotes included, whose unescaped text is in `language`, which is regular and UTF-8. `quoted` allows every
  // escape of JSON; `canonical` one spelling for each text: see TermPool::json_text.
  TermId quoted(TermId language);
  TermId canonical(TermId language);

 private:
  TermPool& terms_;
};

}  // namespace ingot::grammar
