#include "tensor/fp8.h"

#include <algorithm>
#include <cstring>

namespace ingot {
namespace {

using Values = std::array<float, 256>;

constexpr Values values_of(StorageType storage) {
  Values values{};
  for (size_t code = 0; code < values.size(); ++code) values[code] = fp8_value(storage, static_cast<uint8_t>(code));
  return values;
}

constexpr Values e4m3_values = values_of(StorageType::fp8_e4m3);
constexpr Values e5m2_values = values_of(StorageType::fp8_e5m2);

// The largest magnitude as bits, which are ordered as magnitudes are; NaN compares larger than any number.
uint32_t largest_bits(const float* values, int64_t n) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffU);
  return most;
}

template <StorageType storage>
void encode(const float* values, int64_t n, float inverse, std::byte* row) {
  auto* codes = reinterpret_cast<uint8_t*>(row);
  for (int64_t i = 0; i < n; ++i) codes[i] = fp8_code(storage, values[i] * inverse);
}

}  // namespace

float fp8_row_scale(const std::byte* row, int64_t n) {
  float scale = 0;
  std::memcpy(&scale, row + fp8_scale_offset(n), sizeof scale);
  return scale;
}

void decode_fp8(StorageType storage, const std::byte* row, int64_t n, int64_t begin, int64_t count, float* values) {
  const Values& table = storage == StorageType::fp8_e4m3 ? e4m3_values : e5m2_values;
  const float scale = fp8_row_scale(row, n);
  const auto* codes = reinterpret_cast<const uint8_t*>(row + begin);
  for (int64_t i = 0; i < count; ++i) values[i] = table[codes[i]] * scale;
}

void encode_fp8(StorageType storage, const float* values, int64_t n, std::byte* row) {
  const float scale = fp8_scale(storage, std::bit_cast<float>(largest_bits(values, n)));
  std::memset(row + n, 0, fp8_row_bytes(n) - static_cast<size_t>(n));
  std::memcpy(row + fp8_scale_offset(n), &scale, sizeof scale);
  if (!(scale > 0)) {  // NaN
    std::memset(row, 0, static_cast<size_t>(n));
  } else if (storage == StorageType::fp8_e4m3) {
    encode<StorageType::fp8_e4m3>(values, n, 1.0F / scale, row);
  } else {
    encode<StorageType::fp8_e5m2>(values, n, 1.0F / scale, row);
  }
}

}  // namespace ingot
