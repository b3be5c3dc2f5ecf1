// Regular expressions of JSON Schema's `pattern`: ECMA-262 with the flag u, and a `{`, `}` or `]` that stands alone is
// itself, as without it.
//
// Supported: literals, classes with ranges and \d \w \s \p{L} \p{N} and their opposites, escapes, groups, alternatives,
// greedy and lazy quantifiers, ^ and $ anywhere but inside a repetition, look-ahead likewise. Refused by name:
// back-references, \b, \B, look-behind, other Unicode properties. There is no backtracking: a pattern becomes a
// language.
#pragma once

#include <string_view>

#include "grammar/characters.h"

namespace ingot::grammar {

// The texts in which the pattern is found, as they are encoded. Errors: usage for a malformed pattern, unsupported for
// what is not known, resource for more than max_pattern_bytes (grammar/grammar.h); all of them name the pattern.
TermId pattern_language(TermPool& terms, std::string_view pattern);

// The texts that the pattern matches from end to end.
TermId whole_pattern_language(TermPool& terms, std::string_view pattern);

}  // namespace ingot::grammar
