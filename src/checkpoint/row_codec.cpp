#include "checkpoint/row_codec.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "tensor/block_quant.h"
#include "tensor/fp8.h"

namespace ingot::checkpoint {

namespace {

// Rows in files need not be aligned, so elements are read with memcpy.
template <class Decode>
void decode_16(const void* row, int64_t n, float* out, Decode decode) {
  const auto* bytes = static_cast<const std::byte*>(row);
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes + 2 * i, 2);
    out[i] = decode(bits);
  }
}

template <class Encode>
void encode_16(const float* values, int64_t n, void* row, Encode encode) {
  auto* bytes = static_cast<std::byte*>(row);
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = encode(values[i]);
    std::memcpy(bytes + 2 * i, &bits, 2);
  }
}

// Index of the first element whose exponent bits are all set.
template <class Bits>
int64_t find_exponent(const void* row, int64_t n, Bits exponent) {
  const auto* bytes = static_cast<const std::byte*>(row);
  const auto at = [&](int64_t i) {
    Bits bits = 0;
    std::memcpy(&bits, bytes + static_cast<size_t>(i) * sizeof(Bits), sizeof(Bits));
    return (bits & exponent) == exponent;
  };
  constexpr int64_t stretch = 1024;  // checked as a whole, so that it vectorises
  for (int64_t begin = 0; begin < n; begin += stretch) {
    const int64_t end = std::min(n, begin + stretch);
    bool any = false;
    for (int64_t i = begin; i < end; ++i) any |= at(i);
    if (!any) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (at(i)) return i;
    }
  }
  return -1;
}

}  // namespace

void decode_row(StorageType storage, const void* row, int64_t n, float* out) {
  switch (storage) {
    case StorageType::f32: std::memcpy(out, row, static_cast<size_t>(n) * sizeof(float)); return;
    case StorageType::bf16: decode_16(row, n, out, bf16_to_float); return;
    case StorageType::f16: decode_16(row, n, out, f16_to_float); return;
    case StorageType::fp8_e4m3:
    case StorageType::fp8_e5m2: decode_fp8(storage, static_cast<const std::byte*>(row), n, 0, n, out); return;
    default: block_codec(storage).decode(static_cast<const std::byte*>(row), n, out); return;
  }
}

void encode_row(StorageType storage, const float* values, int64_t n, void* row) {
  switch (storage) {
    case StorageType::f32: std::memcpy(row, values, static_cast<size_t>(n) * sizeof(float)); return;
    case StorageType::bf16: encode_16(values, n, row, float_to_bf16); return;
    case StorageType::f16: encode_16(values, n, row, float_to_f16); return;
    case StorageType::fp8_e4m3:
    case StorageType::fp8_e5m2: encode_fp8(storage, values, n, static_cast<std::byte*>(row)); return;
    default: break;
  }
  const BlockCodec& codec = block_codec(storage);
  if (codec.encode == nullptr) throw_error(ErrorKind::internal, "cannot write rows of {}", name(storage));
  codec.encode(values, n, static_cast<std::byte*>(row));
}

int64_t find_non_finite(StorageType storage, const void* row, int64_t n) {
  switch (storage) {
    case StorageType::f32: return find_exponent<uint32_t>(row, n, 0x7f800000U);
    case StorageType::bf16: return find_exponent<uint16_t>(row, n, 0x7f80U);
    case StorageType::f16: return find_exponent<uint16_t>(row, n, 0x7c00U);
    case StorageType::fp8_e4m3:
    case StorageType::fp8_e5m2:
      return find_exponent<uint32_t>(static_cast<const std::byte*>(row) + fp8_scale_offset(n), 1, 0x7f800000U);
    default: break;
  }
  const auto* block = static_cast<const std::byte*>(row);
  const BlockCodec& codec = block_codec(storage);
  for (int64_t begin = 0; begin < n; begin += block_elements(storage), block += block_bytes(storage)) {
    for (int i = 0; i < codec.num_scales; ++i) {
      if (find_exponent<uint16_t>(block + codec.scales + 2 * i, 1, 0x7c00U) == 0) return begin;
    }
  }
  return -1;
}

StorageType storage_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return StorageType::f32;
    case DType::bf16: return StorageType::bf16;
    case DType::f16: return StorageType::f16;
    default: throw_error(ErrorKind::internal, "weights in {}", name(dtype));
  }
}

std::optional<StorageType> storage_from_file(std::string_view file_dtype) {
  std::string lower(file_dtype);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  for (StorageType storage :
       {StorageType::f32, StorageType::bf16, StorageType::f16, StorageType::q8_0, StorageType::q4_0, StorageType::q4_1,
        StorageType::q5_0, StorageType::q5_1, StorageType::q4_k, StorageType::q6_k}) {
    if (lower == name(storage)) return storage;
  }
  return std::nullopt;
}

}  // namespace ingot::checkpoint
