// Conditions on numbers as languages of the texts that meet them.
//
// Where a number has a condition it is written as -?(0|[1-9][0-9]*)(\.[0-9]+)?, not as a negative zero, or with one
// digit from 1 on before the point and an exponent of at most two digits. Where a validator that works in doubles could
// see another order than one that works in decimals, it has at most 15 digits. The languages of single conditions are
// right for such texts, and may hold others.
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

inline constexpr int64_t integer_digits = 18;  // the most an integer may have, where no bound has more

// The texts of numbers that may have conditions.
struct NumberForm {
  bool integers_only = false;
  int64_t digits = integer_digits;  // the most an integer may have
  bool is_exact = false;            // at most 15 digits in numbers that need not be integers
  bool has_exponents = true;        // exponents may come; for integers from 0 on, behind one digit
  bool is_canonical = false;        // every value has one text: no exponent, no 0 at the end of a fraction
};

// Any number; any integer of so many digits at most, as digits alone.
TermId any_number(TermPool& terms);
TermId any_integer(TermPool& terms, int64_t digits);

TermId decimals(TermPool& terms, const NumberForm& form);
TermId texts_of(TermPool& terms, const Decimal& value);  // without exponent

// Without a fraction that is not zero; of texts with an exponent only those that NumberForm::integers_only has.
TermId integers(TermPool& terms);
TermId plain_integers(TermPool& terms);  // written without a point and an exponent
TermId at_least(TermPool& terms, const Decimal& bound);
TermId above(TermPool& terms, const Decimal& bound);
TermId at_most(TermPool& terms, const Decimal& bound);
TermId below(TermPool& terms, const Decimal& bound);
TermId equal_to(TermPool& terms, const Decimal& value);

// Of texts without exponents. Errors: usage when it is not above 0; unsupported when its digits without the point come
// to more than 1000.
TermId multiples_of(TermPool& terms, const Decimal& value);

}  // namespace ingot::grammar
