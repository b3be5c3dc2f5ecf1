#include "checkpoint/weight_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "checkpoint/row_codec.h"

namespace ingot::checkpoint {

namespace {

constexpr size_t chunk_bytes = size_t{8} << 20;
constexpr float largest_f16 = 65504.0F;

void check_range(const std::vector<float>& values, const std::string& what) {
  for (float value : values) {
    // From 65520 on a finite value rounds to infinity in f16.
    if (!std::isfinite(value) || !std::isinf(f16_to_float(float_to_f16(value)))) continue;
    throw_hint(ErrorKind::unsupported, "write bf16 or f32", "{}: the value {} exceeds the largest f16, {}", what, value,
               largest_f16);
  }
}

// The rows of a matrix, or a vector as rows of one element or as a single row, in host-readable memory.
struct RowSource {
  StorageType storage = StorageType::f32;
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t in = 0;
  size_t row() const { return row_bytes(storage, in); }
};

RowSource row_source(const Parameter& parameter, bool single_elements) {
  if (parameter.matrix) {
    const Weight& matrix = parameter.matrix;
    return {matrix.storage, static_cast<const std::byte*>(matrix.data), matrix.out, matrix.in};
  }
  const auto* data = static_cast<const std::byte*>(parameter.vector.data);
  const int64_t n = parameter.vector.elements();
  return {storage_of(parameter.vector.dtype), data, single_elements ? n : 1, single_elements ? 1 : n};
}

// The source as [in, out] in fp32.
std::vector<float> transposed_values(const RowSource& source) {
  std::vector<float> values(static_cast<size_t>(source.rows * source.in));
  std::vector<float> row(static_cast<size_t>(source.in));
  for (int64_t r = 0; r < source.rows; ++r) {
    decode_row(source.storage, source.data + static_cast<size_t>(r) * source.row(), source.in, row.data());
    for (size_t i = 0; i < row.size(); ++i)
      values[i * static_cast<size_t>(source.rows) + static_cast<size_t>(r)] = row[i];
  }
  return values;
}

}  // namespace

void read_parameter(Device& device, const Parameter& parameter, const Placement& placement, StorageType storage,
                    ThreadPool* pool, const std::string& what, FunctionRef<void(std::span<const std::byte>)> write) {
  RowSource source = row_source(parameter, placement.order != RowOrder::same);
  std::vector<std::byte> host;
  if (!device.host_visible()) {
    host.resize(static_cast<size_t>(source.rows) * source.row());
    device.copy_to_host(host.data(), source.data, host.size());
    source.data = host.data();
  }
  std::vector<float> transposed;
  if (placement.transposed) {
    transposed = transposed_values(source);
    source = {StorageType::f32, reinterpret_cast<const std::byte*>(transposed.data()), source.in, source.rows};
  }
  const auto offset = static_cast<float>(placement.offset);
  const size_t from_row = source.row();
  const size_t to_row = row_bytes(storage, source.in);
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(chunk_bytes / std::max(from_row, to_row)));
  std::vector<std::byte> piece(static_cast<size_t>(std::min(step, source.rows)) * to_row);
  for (int64_t begin = 0; begin < source.rows; begin += step) {
    const int64_t end = std::min(begin + step, source.rows);
    const auto convert = [&](int64_t lo, int64_t hi) {
      std::vector<float> values(static_cast<size_t>(source.in));
      for (int64_t row = lo; row < hi; ++row) {
        const std::byte* from = source.data + static_cast<size_t>(memory_row(placement, source.rows, row)) * from_row;
        std::byte* to = piece.data() + static_cast<size_t>(row - begin) * to_row;
        if (source.storage == storage && offset == 0) {
          std::memcpy(to, from, to_row);
          continue;
        }
        decode_row(source.storage, from, source.in, values.data());
        for (float& value : values) value += offset;
        if (storage == StorageType::f16) check_range(values, what);
        encode_row(storage, values.data(), source.in, to);
      }
    };
    if (pool != nullptr) {
      pool->parallel_for(begin, end, std::max<int64_t>(1, (1 << 16) / source.in), convert);
    } else {
      convert(begin, end);
    }
    write(std::span<const std::byte>(piece).first(static_cast<size_t>(end - begin) * to_row));
  }
}

}  // namespace ingot::checkpoint
