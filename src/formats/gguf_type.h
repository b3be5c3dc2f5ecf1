// The tensor types of GGUF.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ingot::formats {

// Values are the ids in the file.
enum class GgufType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
};

struct GgufTypeInfo {
  GgufType type;
  std::string_view name;  // as ggml spells it: "F32", "Q4_K", "IQ2_XXS", ...
  int64_t block_elements;
  int64_t block_bytes;
};

// Every known type, ascending id.
std::span<const GgufTypeInfo> gguf_types();
// Null for an unknown id (also for those that ggml has removed).
const GgufTypeInfo* find_gguf_type(uint32_t id);
// Errors: `internal` for a value outside the enumeration.
const GgufTypeInfo& info(GgufType type);

// Bytes of a tensor with these dimensions, innermost first. Errors: `corrupt`, the message beginning with `what`,
// unless there are 1 to 4 dimensions, none of them negative, their product does not overflow and dims[0] is a whole
// number of blocks.
uint64_t gguf_size(const GgufTypeInfo& type, std::span<const int64_t> dims, std::string_view what);

}  // namespace ingot::formats
