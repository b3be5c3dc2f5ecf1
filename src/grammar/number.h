// Conditions on numbers as languages of the decimals that meet them.
//
// Where a number has a condition it is written as -?(0|[1-9][0-9]*)(\.[0-9]+)?, not as a negative zero, and with at
// most 15 digits (integers: 18, or as many as a bound has), so that a validator that works in doubles sees the same
// order as one that works in decimals. The languages of single conditions are right for such texts, and may hold
// others.
#pragma once

#include <string>
#include <string_view>

#include "grammar/term.h"

namespace ingot::grammar {

// A number without exponent: the digits have neither leading nor trailing zeros but for a single "0" before the point.
struct Decimal {
  bool negative = false;  // never of zero
  std::string whole = "0";
  std::string fraction;

  // Reads a number of JSON. Errors: unsupported for more than 400 digits without exponent.
  static Decimal parse(std::string_view json);
  std::string text() const;
  bool is_integer() const { return fraction.empty(); }
  size_t digits() const { return whole.size() + fraction.size(); }
};

// Any number, exponents of up to two digits included; any integer of so many digits at most.
TermId any_number(TermPool& terms);
TermId any_integer(TermPool& terms, int64_t digits);

// Decimals as the top says. `digits` is the most an integer may have; numbers with a fraction have at most 15. With
// `canonical` a fraction does not end in 0, so that every value has one text.
TermId decimals(TermPool& terms, bool integers_only, int64_t digits, bool canonical);

TermId integers(TermPool& terms);  // without a fraction that is not zero
TermId at_least(TermPool& terms, const Decimal& bound);
TermId above(TermPool& terms, const Decimal& bound);
TermId at_most(TermPool& terms, const Decimal& bound);
TermId below(TermPool& terms, const Decimal& bound);
TermId equal_to(TermPool& terms, const Decimal& value);

// Errors: usage when it is not above 0; unsupported when its digits without the point come to more than 1000.
TermId multiples_of(TermPool& terms, const Decimal& value);

}  // namespace ingot::grammar
