#include "grammar/number.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "grammar/regex.h"

namespace ingot::grammar {

namespace {

constexpr int64_t max_digits = 400;
constexpr int64_t max_modulus = 1000;  // of multipleOf: there is a state for each remainder
constexpr int64_t exact_digits = 15;   // distinct decimals of up to this many digits are distinct doubles
constexpr int64_t many_digits = 36;
constexpr int64_t mantissa_digits = 17;  // digits of a mantissa before an exponent
constexpr int64_t max_exponent = 99;

TermId regex(TermPool& terms, std::string_view pattern) { return whole_pattern_language(terms, pattern); }

TermId digit_above(TermPool& terms, char digit) {
  if (digit == '9') return TermPool::nothing;
  return terms.bytes(ByteSet::range(static_cast<uint8_t>(digit + 1), '9'));
}

// The numbers from `first` to `last`, within 0 to 99, as one or two digits.
TermId two_digits(TermPool& terms, int64_t first, int64_t last) {
  const auto digits = [&](int64_t from, int64_t to) {
    return terms.bytes(ByteSet::range(static_cast<uint8_t>('0' + from), static_cast<uint8_t>('0' + to)));
  };
  std::vector<TermId> parts;
  for (int64_t tens = first / 10; tens <= last / 10 && first <= last; ++tens) {
    const TermId ones = digits(std::max(first - 10 * tens, int64_t{0}), std::min(last - 10 * tens, int64_t{9}));
    const TermId front = tens == 0 ? terms.optional(terms.byte('0')) : digits(tens, tens);
    parts.push_back(terms.sequence(front, ones));
  }
  return terms.choice(parts);
}

// The exponents from `first` to `last`, within -99 to 99, with the leading e.
TermId exponents(TermPool& terms, int64_t first, int64_t last) {
  const TermId positive = two_digits(terms, std::max<int64_t>(first, 0), std::min(last, max_exponent));
  const TermId negative = two_digits(terms, std::max<int64_t>(-last, 0), std::min(-first, max_exponent));
  return terms.sequence(regex(terms, "[eE]"), terms.choice(terms.sequence(terms.optional(terms.byte('+')), positive),
                                                           terms.sequence(terms.byte('-'), negative)));
}

// Unsigned decimals without exponent that are above |bound|, or equal to it if `equal`.
TermId plain_beyond(TermPool& terms, const Decimal& bound, bool equal) {
  const TermId digit = terms.bytes(ByteSet::range('0', '9'));
  const TermId any_digits = terms.repeat(digit, 0, unlimited);
  const TermId any_fraction = terms.optional(terms.sequence(terms.byte('.'), any_digits));
  const TermId not_zero = terms.sequence({any_digits, terms.bytes(ByteSet::range('1', '9')), any_digits});
  const auto size = static_cast<int64_t>(bound.whole.size());
  std::vector<TermId> parts = {terms.sequence(terms.repeat(digit, size + 1, unlimited), any_fraction)};
  for (int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<size_t>(i);
    parts.push_back(terms.sequence({terms.literal(bound.whole.substr(0, at)), digit_above(terms, bound.whole[at]),
                                    terms.repeat(digit, size - i - 1, size - i - 1), any_fraction}));
  }
  std::vector<TermId> fractions;  // of numbers whose whole part equals the bound's
  if (bound.fraction.empty()) {
    fractions.push_back(equal ? any_fraction : terms.sequence(terms.byte('.'), not_zero));
  } else {
    for (size_t i = 0; i < bound.fraction.size(); ++i) {
      fractions.push_back(terms.sequence({terms.byte('.'), terms.literal(bound.fraction.substr(0, i)),
                                          digit_above(terms, bound.fraction[i]), any_digits}));
    }
    fractions.push_back(
        terms.sequence({terms.byte('.'), terms.literal(bound.fraction), equal ? any_digits : not_zero}));
  }
  parts.push_back(terms.sequence(terms.literal(bound.whole), terms.choice(fractions)));
  return terms.choice(parts);
}

// The same for numbers with one digit before the point and an exponent.
TermId scientific_beyond(TermPool& terms, const Decimal& bound, bool equal) {
  const TermId any = regex(terms, "[0-9](?:\\.[0-9]+)?");
  const std::string digits = bound.whole + bound.fraction;
  const size_t first = digits.find_first_not_of('0');
  if (first == std::string::npos) return terms.sequence(any, exponents(terms, -max_exponent, max_exponent));
  const int64_t exponent = static_cast<int64_t>(bound.whole.size()) - 1 - static_cast<int64_t>(first);
  const Decimal mantissa = Decimal::parse(digits.substr(first, 1) + "." + digits.substr(first + 1) + "0");
  return terms.choice(terms.sequence(any, exponents(terms, exponent + 1, max_exponent)),
                      terms.sequence(plain_beyond(terms, mantissa, equal), exponents(terms, exponent, exponent)));
}

TermId beyond(TermPool& terms, const Decimal& bound, bool equal) {
  return terms.choice(plain_beyond(terms, bound, equal), scientific_beyond(terms, bound, equal));
}

// Signed numbers above `bound`, or equal to it if `equal`.
TermId greater(TermPool& terms, const Decimal& bound, bool equal) {
  if (!bound.negative) return beyond(terms, bound, equal);
  const TermId unsigned_ones = regex(terms, "[0-9][0-9.eE+-]*");
  return terms.choice(unsigned_ones, terms.sequence(terms.byte('-'), terms.complement(beyond(terms, bound, !equal))));
}

}  // namespace

Decimal Decimal::parse(std::string_view json) {
  const std::string_view given = json;
  Decimal value;
  if (json.starts_with('-')) {
    value.negative = true;
    json.remove_prefix(1);
  }
  int64_t exponent = 0;
  if (const size_t at = json.find_first_of("eE"); at != std::string_view::npos) {
    std::string_view text = json.substr(at + 1);
    if (text.starts_with('+')) text.remove_prefix(1);
    std::from_chars(text.data(), text.data() + text.size(), exponent);
    json = json.substr(0, at);
  }
  const size_t point = std::min(json.find('.'), json.size());
  std::string digits(json.substr(0, point));
  if (point < json.size()) digits += json.substr(point + 1);
  int64_t whole = static_cast<int64_t>(point) + exponent;  // number of digits before the point
  if (whole > max_digits || whole < -max_digits || static_cast<int64_t>(digits.size()) > max_digits) {
    throw_error(ErrorKind::unsupported, "the number {} has more than {} digits", given, max_digits);
  }
  if (whole < 0) digits.insert(0, static_cast<size_t>(-whole), '0');
  whole = std::max<int64_t>(whole, 0);
  if (whole > static_cast<int64_t>(digits.size())) digits.append(static_cast<size_t>(whole) - digits.size(), '0');
  value.whole = digits.substr(0, static_cast<size_t>(whole));
  value.fraction = digits.substr(static_cast<size_t>(whole));
  value.whole.erase(0, std::min(value.whole.find_first_not_of('0'), value.whole.size()));
  if (value.whole.empty()) value.whole = "0";
  value.fraction.erase(value.fraction.find_last_not_of('0') + 1);
  if (value.whole == "0" && value.fraction.empty()) value.negative = false;
  return value;
}

std::string Decimal::text() const { return (negative ? "-" : "") + whole + (fraction.empty() ? "" : "." + fraction); }

TermId any_number(TermPool& terms) {
  return regex(terms, "-?(?:0|[1-9][0-9]{0,17})(?:\\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,2})?");
}

TermId any_integer(TermPool& terms, int64_t digits) {
  const TermId digit = terms.bytes(ByteSet::range('0', '9'));
  const TermId positive = terms.sequence(terms.bytes(ByteSet::range('1', '9')), terms.repeat(digit, 0, digits - 1));
  return terms.choice(terms.byte('0'), terms.sequence(terms.optional(terms.byte('-')), positive));
}

TermId decimals(TermPool& terms, const NumberForm& form) {
  if (form.integers_only) {
    const TermId plain = any_integer(terms, form.digits);
    if (form.is_canonical) return plain;
    const TermId decimal = terms.sequence(plain, regex(terms, "(?:\\.0{1,17})?"));
    if (!form.has_exponents) return decimal;
    const TermId exponent = two_digits(terms, 0, std::min(form.digits - 1, max_exponent));
    return terms.choice(decimal, terms.sequence(regex(terms, "-?[1-9][eE]\\+?"), exponent));
  }
  const int64_t digits = form.is_exact || form.is_canonical ? exact_digits : many_digits;
  // One character more than digits, of which one is then a point.
  const TermId digit = terms.bytes(ByteSet::range('0', '9'));
  const TermId unsigned_length =
      terms.without(terms.repeat(regex(terms, "[0-9.]"), 1, digits + 1), terms.repeat(digit, digits + 1, digits + 1));
  const TermId length = terms.sequence(terms.optional(terms.byte('-')), unsigned_length);
  const TermId all = form.is_canonical ? regex(terms, "(?:0|-?[1-9][0-9]*)(?:\\.[0-9]*[1-9])?|-0\\.[0-9]*[1-9]")
                                       : regex(terms, "(?:0|-?[1-9][0-9]*)(?:\\.[0-9]+)?|-0\\.0*[1-9][0-9]*");
  const TermId plain = terms.both(all, length);
  if (form.is_canonical || !form.has_exponents) return plain;
  const TermId mantissa =
      regex(terms, fmt::format("-?[1-9](?:\\.[0-9]{{1,{}}})?", std::min(digits, mantissa_digits) - 1));
  return terms.choice(plain, terms.sequence(mantissa, exponents(terms, -max_exponent, max_exponent)));
}

TermId texts_of(TermPool& terms, const Decimal& value) {
  return terms.sequence(terms.literal(value.text()), regex(terms, value.is_integer() ? "(?:\\.0{1,17})?" : "0{0,17}"));
}

TermId integers(TermPool& terms) { return regex(terms, "-?[0-9]+(?:\\.0+)?|-?[0-9][eE]\\+?[0-9]+"); }

TermId plain_integers(TermPool& terms) { return regex(terms, "-?[0-9]+"); }

TermId at_least(TermPool& terms, const Decimal& bound) { return greater(terms, bound, true); }
TermId above(TermPool& terms, const Decimal& bound) { return greater(terms, bound, false); }
TermId at_most(TermPool& terms, const Decimal& bound) { return terms.complement(above(terms, bound)); }
TermId below(TermPool& terms, const Decimal& bound) { return terms.complement(at_least(terms, bound)); }
TermId equal_to(TermPool& terms, const Decimal& value) {
  return terms.both(at_least(terms, value), at_most(terms, value));
}

TermId multiples_of(TermPool& terms, const Decimal& value) {
  if (value.negative || value.text() == "0") {
    throw_error(ErrorKind::usage, "multipleOf is {}; it must be above 0", value.text());
  }
  const std::string digits = value.whole + value.fraction;
  const int64_t modulus = digits.size() > 18 ? max_modulus + 1 : std::stoll(digits);
  if (modulus > max_modulus) {
    throw_error(ErrorKind::unsupported,
                "multipleOf {} is not supported; its digits, read as an integer, may be at most {}", value.text(),
                max_modulus);
  }
  return terms.sequence(terms.optional(terms.byte('-')),
                        terms.multiple(modulus, static_cast<int>(value.fraction.size())));
}

}  // namespace ingot::grammar
