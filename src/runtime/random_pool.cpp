#include "runtime/random_pool.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "base/philox.h"
#include "checkpoint/row_codec.h"

namespace ingot::runtime {

namespace {

constexpr int64_t max_draws = 4'194'301;  // the largest prime below 2^22

}  // namespace

RandomPool::RandomPool(uint64_t seed, int64_t elements)
    : draws_(static_cast<size_t>(std::clamp<int64_t>(elements, 1, max_draws))) {
  RandomStream random(seed);
  for (float& draw : draws_) draw = static_cast<float>(random.normal());
}

const std::vector<std::byte>& RandomPool::encoded(DType dtype, double scale) {
  std::vector<std::byte>& bytes = encoded_[{dtype, scale}];
  if (!bytes.empty()) return bytes;
  const size_t size = size_of(dtype);
  bytes.resize(draws_.size() * size);
  for (size_t i = 0; i < draws_.size(); ++i) {
    const float value = draws_[i] * static_cast<float>(scale);
    const uint16_t half = dtype == DType::bf16 ? float_to_bf16(value) : float_to_f16(value);
    if (dtype == DType::f32) {
      std::memcpy(bytes.data() + i * size, &value, size);
    } else if (dtype == DType::bf16 || dtype == DType::f16) {
      std::memcpy(bytes.data() + i * size, &half, size);
    } else {
      throw_error(ErrorKind::internal, "random numbers of type {}", name(dtype));
    }
  }
  return bytes;
}

void RandomPool::fill(Device& device, const Tensor& tensor, double scale) {
  const std::vector<std::byte>& pool = encoded(tensor.dtype, scale);
  const size_t size = size_of(tensor.dtype);
  auto* to = static_cast<std::byte*>(tensor.data);
  for (size_t left = tensor.bytes(); left > 0;) {
    const size_t bytes = std::min(left, pool.size() - begin_ * size);
    device.copy_from_host(to, pool.data() + begin_ * size, bytes);
    to += bytes;
    left -= bytes;
    begin_ = (begin_ + bytes / size) % draws_.size();
  }
}

void RandomPool::fill(Device& device, const Weight& matrix, void* data, double scale) {
  constexpr int64_t piece_elements = int64_t{1} << 20;
  const int64_t max_rows = std::clamp<int64_t>(piece_elements / std::max<int64_t>(1, matrix.in), 1, matrix.out);
  const size_t bytes = row_bytes(matrix.storage, matrix.in);
  std::vector<float> values(static_cast<size_t>(matrix.in));
  std::vector<std::byte> piece(static_cast<size_t>(max_rows) * bytes);
  auto* to = static_cast<std::byte*>(data);
  for (int64_t row = 0; row < matrix.out; row += max_rows) {
    const int64_t count = std::min(max_rows, matrix.out - row);
    for (int64_t i = 0; i < count; ++i) {
      for (float& value : values) {
        value = draws_[begin_] * static_cast<float>(scale);
        begin_ = (begin_ + 1) % draws_.size();
      }
      checkpoint::encode_row(matrix.storage, values.data(), matrix.in, piece.data() + static_cast<size_t>(i) * bytes);
    }
    device.copy_from_host(to, piece.data(), static_cast<size_t>(count) * bytes);
    to += static_cast<size_t>(count) * bytes;
  }
}

}  // namespace ingot::runtime
