#include "checkpoint/weight_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/half.h"
#include "checkpoint/row_codec.h"

namespace ingot::checkpoint {

namespace {

constexpr size_t piece_bytes = size_t{8} << 20;
constexpr float largest_f16 = 65504.0F;

void check_range(const std::vector<float>& values, const std::string& what) {
  for (float value : values) {
    // From 65520 on a finite value would round to infinity.
    if (!std::isfinite(value) || !std::isinf(f16_to_float(float_to_f16(value)))) continue;
    throw_hint(ErrorKind::unsupported, "write bf16 or f32", "{}: the value {} is beyond f16's largest, {}", what, value,
               largest_f16);
  }
}

}  // namespace

RowSource row_source(const Parameter& parameter, bool single_elements) {
  if (parameter.matrix) {
    const Weight& matrix = parameter.matrix;
    return {matrix.storage, static_cast<const std::byte*>(matrix.data), matrix.out, matrix.in};
  }
  const auto* data = static_cast<const std::byte*>(parameter.vector.data);
  const int64_t n = parameter.vector.elements();
  return {storage_of(parameter.vector.dtype), data, single_elements ? n : 1, single_elements ? 1 : n};
}

void read_rows(Device& device, const RowSource& source, Storage storage, FunctionRef<int64_t(int64_t)> order,
               ThreadPool* pool, const std::string& what, FunctionRef<void(std::span<const std::byte>)> write) {
  const size_t from_row = row_bytes(source.storage, source.in);
  const size_t to_row = row_bytes(storage, source.in);
  std::vector<std::byte> host;
  const std::byte* data = source.data;
  if (!device.host_visible()) {
    host.resize(static_cast<size_t>(source.rows) * from_row);
    device.copy_to_host(host.data(), source.data, host.size());
    data = host.data();
  }
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(piece_bytes / std::max(from_row, to_row)));
  std::vector<std::byte> piece(static_cast<size_t>(std::min(step, source.rows)) * to_row);
  for (int64_t begin = 0; begin < source.rows; begin += step) {
    const int64_t end = std::min(begin + step, source.rows);
    const auto convert = [&](int64_t lo, int64_t hi) {
      std::vector<float> values(static_cast<size_t>(source.in));
      for (int64_t row = lo; row < hi; ++row) {
        const std::byte* from = data + static_cast<size_t>(order(row)) * from_row;
        std::byte* to = piece.data() + static_cast<size_t>(row - begin) * to_row;
        if (source.storage == storage) {
          std::memcpy(to, from, to_row);
          continue;
        }
        decode_row(source.storage, from, source.in, values.data());
        if (storage == Storage::f16) check_range(values, what);
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
