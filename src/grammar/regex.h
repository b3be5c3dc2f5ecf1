// Regular expressions of JSON Schema's `pattern`: ECMA-262 with the flag u, except that an unpaired `{`, `}` or `]` is
// a literal, as without the flag.
//
// Supported: literals, classes with ranges and \d \w \s \p{L} \p{N} and their complements, escapes, groups,
// alternatives, greedy and lazy quantifiers, ^ and $ and look-ahead anywhere except inside a repetition. Refused by
// name: back-references, \b, \B, look-behind, other Unicode properties. There is no backtracking: a pattern is compiled
// to a language.
#pragma once

#include <string_view>

#include "grammar/characters.h"

namespace ingot::grammar {

// The UTF-8 texts that contain a match of the pattern. Errors: usage for a malformed pattern, unsupported for
// unsupported syntax, resource for more than max_pattern_bytes
// (grammar/grammar.h); all of them name the pattern.
TermId pattern_language(TermPool& terms, std::string_view pattern);

// The UTF-8 texts that the pattern matches from end to end.
TermId whole_pattern_language(TermPool& terms, std::string_view pattern);

}  // namespace ingot::grammar
