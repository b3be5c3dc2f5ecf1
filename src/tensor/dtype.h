// Element types of tensors in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ingot {

enum class DType : uint8_t { f32, f64, bf16, f16, i8, i32, i64, u8 };

size_t size_of(DType dtype);                   // bytes per element
const char* name(DType dtype);                 // "f32", "bf16", ...
DType dtype_from_name(std::string_view name);  // f32, fp32, bf16, f16, ... (floating point only); else ErrorKind::usage

}  // namespace ingot
