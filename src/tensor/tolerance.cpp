#include "tensor/tolerance.h"

#include <cmath>

#include "base/error.h"

namespace ingot {

double unit_roundoff(DType dtype) {
  switch (dtype) {
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

}  // namespace ingot
