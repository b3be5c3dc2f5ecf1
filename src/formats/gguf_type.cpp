#include "formats/gguf_type.h"

#include <limits>

#include "base/error.h"

namespace ingot::formats {

std::span<const GgufTypeInfo> gguf_types() {
  static constexpr GgufTypeInfo types[] = {
      {GgufType::f32, "F32", 1, 4},
      {GgufType::f16, "F16", 1, 2},
      {GgufType::q4_0, "Q4_0", 32, 18},
      {GgufType::q4_1, "Q4_1", 32, 20},
      {GgufType::q5_0, "Q5_0", 32, 22},
      {GgufType::q5_1, "Q5_1", 32, 24},
      {GgufType::q8_0, "Q8_0", 32, 34},
      {GgufType::q8_1, "Q8_1", 32, 36},
      {GgufType::q2_k, "Q2_K", 256, 84},
      {GgufType::q3_k, "Q3_K", 256, 110},
      {GgufType::q4_k, "Q4_K", 256, 144},
      {GgufType::q5_k, "Q5_K", 256, 176},
      {GgufType::q6_k, "Q6_K", 256, 210},
      {GgufType::q8_k, "Q8_K", 256, 292},
      {GgufType::iq2_xxs, "IQ2_XXS", 256, 66},
      {GgufType::iq2_xs, "IQ2_XS", 256, 74},
      {GgufType::iq3_xxs, "IQ3_XXS", 256, 98},
      {GgufType::iq1_s, "IQ1_S", 256, 50},
      {GgufType::iq4_nl, "IQ4_NL", 32, 18},
      {GgufType::iq3_s, "IQ3_S", 256, 110},
      {GgufType::iq2_s, "IQ2_S", 256, 82},
      {GgufType::iq4_xs, "IQ4_XS", 256, 136},
      {GgufType::i8, "I8", 1, 1},
      {GgufType::i16, "I16", 1, 2},
      {GgufType::i32, "I32", 1, 4},
      {GgufType::i64, "I64", 1, 8},
      {GgufType::f64, "F64", 1, 8},
      {GgufType::iq1_m, "IQ1_M", 256, 56},
      {GgufType::bf16, "BF16", 1, 2},
      {GgufType::tq1_0, "TQ1_0", 256, 54},
      {GgufType::tq2_0, "TQ2_0", 256, 66},
      {GgufType::mxfp4, "MXFP4", 32, 17},
      {GgufType::nvfp4, "NVFP4", 64, 36},
      {GgufType::q1_0, "Q1_0", 128, 18},
  };
  return types;
}

const GgufTypeInfo* find_gguf_type(uint32_t id) {
  for (const GgufTypeInfo& type : gguf_types()) {
    if (static_cast<uint32_t>(type.type) == id) return &type;
  }
  return nullptr;
}

const GgufTypeInfo& info(GgufType type) {
  const GgufTypeInfo* found = find_gguf_type(static_cast<uint32_t>(type));
  if (found == nullptr) throw_error(ErrorKind::internal, "{} is not a GGUF tensor type", static_cast<uint32_t>(type));
  return *found;
}

uint64_t gguf_size(const GgufTypeInfo& type, std::span<const int64_t> dims, std::string_view what) {
  if (dims.empty() || dims.size() > 4) {
    throw_error(ErrorKind::corrupt, "{}: {} dimensions, but the format allows 1 to 4", what, dims.size());
  }
  int64_t elements = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) throw_error(ErrorKind::corrupt, "{}: a dimension exceeds 2^63", what);
    if (__builtin_mul_overflow(elements, dim, &elements)) {
      throw_error(ErrorKind::corrupt, "{}: the product of its dimensions overflows", what);
    }
  }
  if (dims[0] % type.block_elements != 0) {
    throw_error(ErrorKind::corrupt, "{}: rows of {} elements are not a multiple of the {} block size {}", what, dims[0],
                type.name, type.block_elements);
  }
  uint64_t size = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(elements / type.block_elements),
                             static_cast<uint64_t>(type.block_bytes), &size)) {
    throw_error(ErrorKind::corrupt, "{}: the product of its dimensions overflows", what);
  }
  return size;
}

}  // namespace ingot::formats
