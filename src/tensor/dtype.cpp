#include "tensor/dtype.h"

#include "base/error.h"

namespace ingot {

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::i8:
    case DType::u8: return 1;
    case DType::f64:
    case DType::i64: return 8;
  }
  throw_error(ErrorKind::internal, "unknown dtype {}", static_cast<int>(dtype));
}

const char* name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i8: return "i8";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}

DType dtype_from_name(std::string_view name) {
  if (name == "f32" || name == "fp32" || name == "float32") return DType::f32;
  if (name == "bf16" || name == "bfloat16") return DType::bf16;
  if (name == "f16" || name == "fp16" || name == "float16") return DType::f16;
  throw_hint(ErrorKind::usage, "use fp32, bf16 or fp16", "'{}' is not a floating-point type", name);
}

}  // namespace ingot
