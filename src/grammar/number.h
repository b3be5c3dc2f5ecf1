// Conditions on JSON numbers, as languages of the texts that satisfy them.
//
// A number that is subject to a condition has one of two forms: -?(0|[1-9][0-9]*)(\.[0-9]+)?, except negative zero; or
// one digit from 1 to 9, an optional fraction and an exponent of at most two digits. Where a validator that computes in
// doubles could order numbers differently from one that computes in decimals, it has at most 15 digits. The languages
// of single conditions are correct for texts of these forms, and may contain other texts.
#pragma once

#include <string>
#include <string_view>

#include "grammar/term.h"

namespace ingot::grammar {

// A number without exponent. `whole` has no leading zeros except for a single "0" before the point, `fraction` no
// trailing zeros.
struct Decimal {
  bool negative = false;  // never set for zero
  std::string whole = "0";
  std::string fraction;

  // Parses a JSON number. Errors: unsupported when it has more than 400 digits without exponent.
  static Decimal parse(std::string_view json);
  std::string text() const;
  bool is_integer() const { return fraction.empty(); }
  size_t digits() const { return whole.size() + fraction.size(); }
};

inline constexpr int64_t integer_digits = 18;  // max digits of an integer, unless a bound has more

// The form of numbers that are subject to conditions.
struct NumberForm {
  bool integers_only = false;
  int64_t digits = integer_digits;  // max digits of an integer
  bool is_exact = false;            // at most 15 digits in numbers that need not be integers
  bool has_exponents = true;        // exponents are allowed; for integers only exponents >= 0 after a single digit
  bool is_canonical = false;        // every value has one text: no exponent, no trailing zero in a fraction
};

// `any_number`: any number. `any_integer`: any integer of at most `digits` digits, without point and exponent.
TermId any_number(TermPool& terms);
TermId any_integer(TermPool& terms, int64_t digits);

TermId decimals(TermPool& terms, const NumberForm& form);
TermId texts_of(TermPool& terms, const Decimal& value);  // the spellings of `value` without exponent

// Numbers whose fraction is absent or zero; of the texts with an exponent, only the form of NumberForm::integers_only.
TermId integers(TermPool& terms);
TermId plain_integers(TermPool& terms);  // without point and exponent
TermId at_least(TermPool& terms, const Decimal& bound);
TermId above(TermPool& terms, const Decimal& bound);
TermId at_most(TermPool& terms, const Decimal& bound);
TermId below(TermPool& terms, const Decimal& bound);
TermId equal_to(TermPool& terms, const Decimal& value);

// For texts without exponents. Errors: usage when `value` is not above 0; unsupported when its digits without the
// point, read as an integer, are above 1000.
TermId multiples_of(TermPool& terms, const Decimal& value);

}  // namespace ingot::grammar
