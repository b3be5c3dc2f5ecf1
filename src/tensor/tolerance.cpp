#include "tensor/tolerance.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f64: return std::ldexp(1.0, -53);
    case DType::f32: return std::ldexp(1.0, -24);
    case DType::f16: return std::ldexp(1.0, -11);
    case DType::bf16: return std::ldexp(1.0, -8);
    default: throw_error(ErrorKind::internal, "no unit roundoff is known for {}", name(dtype));
  }
}

double tolerance(DType result, int64_t length) {
  const double sum = std::sqrt(static_cast<double>(length)) * unit_roundoff(DType::f32);
  const double store = result == DType::f32 ? 0.0 : unit_roundoff(result);
  return 8.0 * (sum + store);
}

namespace {

// Half the distance between the numbers of `dtype` around `value`.
double half_unit(DType dtype, double value) {
  const int least = dtype == DType::f16 ? -14 : -126;  // exponent of the smallest normal number
  const int exponent = value == 0 ? least : std::max(std::ilogb(value), least);
  return std::ldexp(unit_roundoff(dtype), exponent);
}

}  // namespace

double element_tolerance(DType result, int64_t length, const ElementTerms& terms, Rounding rounding) {
  const double sum = 4.0 * unit_roundoff(result == DType::f64 ? DType::f64 : DType::f32);
  const double wanted = std::abs(terms.wanted);
  const double computed = sum * (std::sqrt(static_cast<double>(length)) * wanted + terms.condition);
  if (result == DType::f32 || result == DType::f64) return computed + std::ldexp(1.0, -126);
  const double unit = unit_roundoff(result);
  // Subnormal numbers are a constant distance apart in f16, and may be replaced by 0 in bf16.
  const double least = result == DType::f16 ? std::ldexp(1.0, -25) : std::ldexp(1.0, -126);
  const double stored = rounding == Rounding::nearest ? half_unit(result, wanted) : unit * wanted;
  return computed + stored + unit * terms.narrow + least;
}

}  // namespace ingot
