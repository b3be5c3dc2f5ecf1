#include "tests/backend/gpu/ptx/arithmetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace ingot::ptx {
namespace {

using Table = std::unordered_map<std::string, Operation>;

// Results that are NaN are the canonical NaN, of f32 ("Floating-Point Instructions").
float canonical(float value) { return value == value ? value : std::bit_cast<float>(0x7fffffffU); }

// min and max: the other operand if one is NaN, and -0 is less than +0.
template <class T>
T smaller(T a, T b) {
  if (a != a || b != b) return a != a ? b : a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T larger(T a, T b) {
  return -smaller<T>(-a, -b);
}

// Truncates towards zero, within the range of s64; NaN becomes its minimum ("cvt").
template <class T>
int64_t to_s64(T value) {
  if (!(value >= static_cast<T>(-0x1p63))) return std::numeric_limits<int64_t>::min();
  return value >= static_cast<T>(0x1p63) ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(value);
}

// b with the lowest `length` bits of a from `position` on ("bfi").
template <class U>
U insert_bits(U a, U b, uint32_t position, uint32_t length) {
  constexpr uint32_t bits = 8 * sizeof(U);
  position &= 0xff;
  length &= 0xff;
  if (position >= bits || length == 0) return b;
  const U mask = (length >= bits ? ~U{} : (U{1} << length) - 1) << position;
  return (b & ~mask) | (a << position & mask);
}

// d = a op b in integers that wrap.
template <class T>
void add_integer(Table& table, const std::string& type) {
  using U = std::make_unsigned_t<T>;
  constexpr int bits = 8 * sizeof(T);
  table["add." + type] = lanewise([](U a, U b) { return static_cast<U>(a + b); });
  table["sub." + type] = lanewise([](U a, U b) { return static_cast<U>(a - b); });
  table["mul.lo." + type] = lanewise([](U a, U b) { return static_cast<U>(uint64_t{a} * b); });
  table["mad.lo." + type] = lanewise([](U a, U b, U c) { return static_cast<U>(uint64_t{a} * b + c); });
  table["min." + type] = lanewise([](T a, T b) { return a < b ? a : b; });
  table["max." + type] = lanewise([](T a, T b) { return a < b ? b : a; });
  // Division by zero is unspecified there: all ones here, and the dividend as remainder.
  table["div." + type] = lanewise([](T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return static_cast<T>(U{} - static_cast<U>(a));
    }
    return static_cast<T>(a / b);
  });
  table["rem." + type] = lanewise([](T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return T{};
    }
    return static_cast<T>(a % b);
  });
  table["shr." + type] = lanewise([](T a, uint32_t n) {
    if (n >= bits) return static_cast<T>(a < 0 ? -1 : 0);
    return static_cast<T>(a >> n);
  });
  table["setp.eq." + type] = lanewise([](T a, T b) { return a == b; });
  table["setp.ne." + type] = lanewise([](T a, T b) { return a != b; });
  table["setp.lt." + type] = lanewise([](T a, T b) { return a < b; });
  table["setp.le." + type] = lanewise([](T a, T b) { return a <= b; });
  table["setp.gt." + type] = lanewise([](T a, T b) { return a > b; });
  table["setp.ge." + type] = lanewise([](T a, T b) { return a >= b; });
  if constexpr (std::is_signed_v<T>) {
    table["abs." + type] =
        lanewise([](T a) { return static_cast<T>(a < 0 ? U{} - static_cast<U>(a) : static_cast<U>(a)); });
    table["neg." + type] = lanewise([](U a) { return static_cast<U>(U{} - a); });
  }
}

// Products of twice the width.
template <class T, class Wide>
void add_wide(Table& table, const std::string& type) {
  table["mul.wide." + type] = lanewise([](T a, T b) { return static_cast<Wide>(Wide{a} * Wide{b}); });
  table["mul.hi." + type] =
      lanewise([](T a, T b) { return static_cast<T>(static_cast<Wide>(Wide{a} * Wide{b}) >> 8 * sizeof(T)); });
}

template <class U>
void add_bits(Table& table, const std::string& size) {
  const std::string type = "b" + size;
  constexpr int bits = 8 * sizeof(U);
  table["and." + type] = lanewise([](U a, U b) { return static_cast<U>(a & b); });
  table["or." + type] = lanewise([](U a, U b) { return static_cast<U>(a | b); });
  table["xor." + type] = lanewise([](U a, U b) { return static_cast<U>(a ^ b); });
  table["not." + type] = lanewise([](U a) { return static_cast<U>(~a); });
  table["shl." + type] =
      lanewise([](U a, uint32_t n) { return n >= bits ? U{} : static_cast<U>(static_cast<uint64_t>(a) << n); });
  table["setp.eq." + type] = lanewise([](U a, U b) { return a == b; });
  table["setp.ne." + type] = lanewise([](U a, U b) { return a != b; });
  for (const char* kind : {"b", "u", "s", "f"}) {
    if (sizeof(U) == 2 && *kind == 'f') continue;
    table["selp." + (kind + size)] = lanewise([](U a, U b, bool first) { return first ? a : b; });
    table["mov." + (kind + size)] = lanewise([](U a) { return a; });
  }
}

// Comparisons of floats: the plain ones are false for NaN, those with u are true.
template <class T>
void add_float(Table& table, const std::string& type) {
  table["setp.eq." + type] = lanewise([](T a, T b) { return a == b; });
  table["setp.ne." + type] = lanewise([](T a, T b) { return a < b || a > b; });
  table["setp.lt." + type] = lanewise([](T a, T b) { return a < b; });
  table["setp.le." + type] = lanewise([](T a, T b) { return a <= b; });
  table["setp.gt." + type] = lanewise([](T a, T b) { return a > b; });
  table["setp.ge." + type] = lanewise([](T a, T b) { return a >= b; });
  table["setp.equ." + type] = lanewise([](T a, T b) { return !(a < b || a > b); });
  table["setp.neu." + type] = lanewise([](T a, T b) { return a != b; });
  table["setp.ltu." + type] = lanewise([](T a, T b) { return !(a >= b); });
  table["setp.leu." + type] = lanewise([](T a, T b) { return !(a > b); });
  table["setp.gtu." + type] = lanewise([](T a, T b) { return !(a <= b); });
  table["setp.geu." + type] = lanewise([](T a, T b) { return !(a < b); });
  table["setp.num." + type] = lanewise([](T a, T b) { return a == a && b == b; });
  table["setp.nan." + type] = lanewise([](T a, T b) { return a != a || b != b; });
  table["abs." + type] = lanewise([](T a) { return std::fabs(a); });
  table["neg." + type] = lanewise([](T a) { return -a; });
}

// cvt.rn from an integer type.
template <class T>
void add_to_float(Table& table, const std::string& type) {
  table["cvt.rn.f32." + type] = lanewise([](T a) { return static_cast<float>(a); });
  table["cvt.rn.f64." + type] = lanewise([](T a) { return static_cast<double>(a); });
}

void add_f32(Table& table) {
  table["add.rn.f32"] = lanewise([](float a, float b) { return canonical(a + b); });
  table["sub.rn.f32"] = lanewise([](float a, float b) { return canonical(a - b); });
  table["mul.rn.f32"] = lanewise([](float a, float b) { return canonical(a * b); });
  table["fma.rn.f32"] = lanewise([](float a, float b, float c) { return canonical(std::fma(a, b, c)); });
  table["div.rn.f32"] = lanewise([](float a, float b) { return canonical(a / b); });
  table["rcp.rn.f32"] = lanewise([](float a) { return canonical(1 / a); });
  table["sqrt.rn.f32"] = lanewise([](float a) { return canonical(std::sqrt(a)); });
  table["min.f32"] = lanewise([](float a, float b) { return canonical(smaller(a, b)); });
  table["max.f32"] = lanewise([](float a, float b) { return canonical(larger(a, b)); });
  // A device's result is within 2^-22 of this one; subnormal operands and results are zero.
  table["ex2.approx.ftz.f32"] = lanewise([](float a) {
    const auto result = static_cast<float>(std::exp2(static_cast<double>(a)));
    return canonical(result < std::numeric_limits<float>::min() ? 0.0F : result);
  });
}

void add_f64(Table& table) {
  table["add.rn.f64"] = lanewise([](double a, double b) { return a + b; });
  table["sub.rn.f64"] = lanewise([](double a, double b) { return a - b; });
  table["mul.rn.f64"] = lanewise([](double a, double b) { return a * b; });
  table["fma.rn.f64"] = lanewise([](double a, double b, double c) { return std::fma(a, b, c); });
  table["div.rn.f64"] = lanewise([](double a, double b) { return a / b; });
  table["sqrt.rn.f64"] = lanewise([](double a) { return std::sqrt(a); });
  table["min.f64"] = lanewise([](double a, double b) { return smaller(a, b); });
  table["max.f64"] = lanewise([](double a, double b) { return larger(a, b); });
}

void add_conversions(Table& table) {
  add_to_float<int16_t>(table, "s16");
  add_to_float<uint16_t>(table, "u16");
  add_to_float<int32_t>(table, "s32");
  add_to_float<uint32_t>(table, "u32");
  add_to_float<int64_t>(table, "s64");
  add_to_float<uint64_t>(table, "u64");
  table["cvt.f64.f32"] = lanewise([](float a) { return static_cast<double>(a); });
  table["cvt.rn.f32.f64"] = lanewise([](double a) { return canonical(static_cast<float>(a)); });
  table["cvt.rzi.s64.f32"] = lanewise([](float a) { return to_s64(a); });
  table["cvt.rzi.s64.f64"] = lanewise([](double a) { return to_s64(a); });
  table["cvt.f32.f16"] = lanewise([](uint16_t a) { return canonical(static_cast<float>(small_float(a, 5, 10))); });
  table["cvt.rn.f16.f32"] = lanewise([](float a) { return to_small_float(a, 5, 10); });
  // The first operand becomes the upper half.
  table["cvt.rn.f16x2.f32"] = lanewise([](float a, float b) {
    return static_cast<uint32_t>(to_small_float(a, 5, 10)) << 16 | to_small_float(b, 5, 10);
  });
  table["cvt.rn.bf16x2.f32"] = lanewise(
      [](float a, float b) { return static_cast<uint32_t>(to_small_float(a, 8, 7)) << 16 | to_small_float(b, 8, 7); });
}

void add_predicates(Table& table) {
  table["and.pred"] = lanewise([](bool a, bool b) { return a && b; });
  table["or.pred"] = lanewise([](bool a, bool b) { return a || b; });
  table["xor.pred"] = lanewise([](bool a, bool b) { return a != b; });
  table["not.pred"] = lanewise([](bool a) { return !a; });
  table["mov.pred"] = lanewise([](bool a) { return a; });
}

void add_bit_counts(Table& table) {
  table["popc.b32"] = lanewise([](uint32_t a) { return static_cast<uint32_t>(std::popcount(a)); });
  table["popc.b64"] = lanewise([](uint64_t a) { return static_cast<uint32_t>(std::popcount(a)); });
  table["bfe.u32"] = lanewise([](uint32_t a, uint32_t position, uint32_t length) {
    const uint64_t mask = (uint64_t{1} << std::min(length & 0xff, 32U)) - 1;
    return static_cast<uint32_t>(uint64_t{a} >> std::min(position & 0xff, 32U) & mask);
  });
  table["bfi.b32"] = lanewise(
      [](uint32_t a, uint32_t b, uint32_t position, uint32_t length) { return insert_bits(a, b, position, length); });
  table["bfi.b64"] = lanewise(
      [](uint64_t a, uint64_t b, uint32_t position, uint32_t length) { return insert_bits(a, b, position, length); });
  // Each 4 bits of c choose a byte of b:a; with the highest of them set, its sign eight times.
  table["prmt.b32"] = lanewise([](uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t choice = c >> 4 * i & 15;
      uint32_t byte = static_cast<uint32_t>(bytes >> 8 * (choice & 7)) & 0xff;
      if ((choice & 8) != 0) byte = byte >= 0x80 ? 0xff : 0;
      result |= byte << 8 * i;
    }
    return result;
  });
}

Table make_table() {
  Table table;
  add_bits<uint16_t>(table, "16");
  add_bits<uint32_t>(table, "32");
  add_bits<uint64_t>(table, "64");
  add_integer<int16_t>(table, "s16");
  add_integer<uint16_t>(table, "u16");
  add_integer<int32_t>(table, "s32");
  add_integer<uint32_t>(table, "u32");
  add_integer<int64_t>(table, "s64");
  add_integer<uint64_t>(table, "u64");
  add_wide<int16_t, int32_t>(table, "s16");
  add_wide<uint16_t, uint32_t>(table, "u16");
  add_wide<int32_t, int64_t>(table, "s32");
  add_wide<uint32_t, uint64_t>(table, "u32");
  add_float<float>(table, "f32");
  add_float<double>(table, "f64");
  add_f32(table);
  add_f64(table);
  add_conversions(table);
  add_predicates(table);
  add_bit_counts(table);
  return table;
}

constexpr std::array<std::string_view, 8> integer_types = {"s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"};

int integer_type(std::string_view name) {
  for (size_t i = 0; i < integer_types.size(); ++i) {
    if (integer_types[i] == name) return static_cast<int>(i);
  }
  return -1;
}

// `value` modulo the type's range, as 64 bits: extended by its sign or by zeros.
int64_t in_range(int64_t value, int type) {
  switch (type) {
    case 0: return static_cast<int8_t>(value);
    case 1: return static_cast<uint8_t>(value);
    case 2: return static_cast<int16_t>(value);
    case 3: return static_cast<uint16_t>(value);
    case 4: return static_cast<int32_t>(value);
    case 5: return static_cast<uint32_t>(value);
    default: return value;
  }
}

template <class Bits>
void store_converted(const int64_t* values, Bits* to, uint32_t active) {
  Bits result[lanes];
  for (int lane = 0; lane < lanes; ++lane) result[lane] = static_cast<Bits>(values[lane]);
  store_lanes(to, result, active);
}

}  // namespace

const std::unordered_map<std::string, Operation>& arithmetic() {
  static const Table table = make_table();
  return table;
}

int integer_conversion(std::string_view opcode) {
  if (!opcode.starts_with("cvt.")) return -1;
  opcode.remove_prefix(4);
  const size_t dot = opcode.find('.');
  if (dot == std::string_view::npos) return -1;
  const int to = integer_type(opcode.substr(0, dot));
  const int from = integer_type(opcode.substr(dot + 1));
  return to < 0 || from < 0 ? -1 : to * 8 + from;
}

void convert_integers(const Instruction& instruction, Warp& warp, uint32_t active) {
  int64_t values[lanes];
  const uint32_t from = instruction.at[1];
  for (int lane = 0; lane < lanes; ++lane) {
    switch (instruction.bytes[1]) {
      case 2: values[lane] = warp.at<const uint16_t>(from)[lane]; break;
      case 4: values[lane] = warp.at<const uint32_t>(from)[lane]; break;
      default: values[lane] = static_cast<int64_t>(warp.at<const uint64_t>(from)[lane]);
    }
  }
  const int to_type = instruction.flags / 8;
  const int from_type = instruction.flags % 8;
  for (int64_t& value : values) value = in_range(in_range(value, from_type), to_type);
  switch (instruction.bytes[0]) {
    case 2: return store_converted(values, warp.at<uint16_t>(instruction.at[0]), active);
    case 4: return store_converted(values, warp.at<uint32_t>(instruction.at[0]), active);
    default: return store_converted(values, warp.at<uint64_t>(instruction.at[0]), active);
  }
}

double small_float(uint32_t code, int exponent_bits, int mantissa_bits, bool finite) {
  const auto magnitude = static_cast<int>(code & ((1U << (exponent_bits + mantissa_bits)) - 1));
  const double sign = (code >> (exponent_bits + mantissa_bits) & 1) != 0 ? -1 : 1;
  const int exponent = magnitude >> mantissa_bits;
  const int digits = magnitude & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const bool all_ones = exponent == (1 << exponent_bits) - 1;
  if (all_ones && (finite ? digits == (1 << mantissa_bits) - 1 : digits != 0)) return std::nan("");
  if (all_ones && !finite) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(digits, 1 - bias - mantissa_bits);
  return sign * std::ldexp(digits + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

uint16_t to_small_float(float value, int exponent_bits, int mantissa_bits) {
  if (value != value) return 0x7fff;
  const int sign = std::signbit(value) ? 1 << (exponent_bits + mantissa_bits) : 0;
  const int infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  // The exponent of the last digit, and the number in units of it, rounded; a carry into the next exponent is right
  // too.
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int unit = std::max(std::ilogb(magnitude), 1 - bias) - mantissa_bits;
  const auto digits = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -unit)));
  const int code = ((unit + mantissa_bits + bias - 1) << mantissa_bits) + digits;
  return static_cast<uint16_t>(sign | std::min(code, infinity));
}

}  // namespace ingot::ptx
