#include "grammar/json_terms.h"

#include "grammar/characters.h"
#include "grammar/regex.h"

namespace ingot::grammar {

JsonTerms::JsonTerms(Automaton& automaton, Whitespace whitespace) : terms_(automaton.terms) {
  const auto regex = [&](std::string_view text) { return whole_pattern_language(terms_, text); };
  const bool is_formatted = whitespace == Whitespace::formatted;
  space = is_formatted ? regex(" |\\n[ \\t]{0,64}|") : TermPool::empty;
  colon = is_formatted ? regex(": ?") : terms_.byte(':');
  comma = terms_.sequence(terms_.byte(','), space);
  const TermId character = regex(
      "[^\"\\\\\\x00-\\x1F]|\\\\[\"\\\\/bfnrt]|\\\\u(?:[0-9A-Ca-cE-Fe-f][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2}|"
      "[Dd][89ABab][0-9A-Fa-f]{2}\\\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})");
  free_text =
      terms_.unit(terms_.sequence({terms_.byte('"'), terms_.repeat(character, 0, unlimited), terms_.byte('"')}));
}

TermId JsonTerms::quoted(TermId language) {
  return terms_.unit(terms_.sequence({terms_.byte('"'), terms_.json_text(language, false), terms_.byte('"')}));
}

TermId JsonTerms::canonical(TermId language) {
  return terms_.sequence({terms_.byte('"'), terms_.json_text(language, true), terms_.byte('"')});
}

}  // namespace ingot::grammar
