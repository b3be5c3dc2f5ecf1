#include "tensor/weight.h"

#include "base/error.h"
#include "tensor/fp8.h"

namespace ingot {

namespace {
struct StorageRow {
  const char* name;
  int64_t elements;
  size_t bytes;
};

const StorageRow& row_of(StorageType storage) {
  static constexpr StorageRow rows[] = {{"f32", 1, 4},      {"bf16", 1, 2},     {"f16", 1, 2},      {"q8_0", 32, 34},
                                        {"q4_0", 32, 18},   {"q4_1", 32, 20},   {"q5_0", 32, 22},   {"q5_1", 32, 24},
                                        {"q4_k", 256, 144}, {"q6_k", 256, 210}, {"fp8_e4m3", 1, 1}, {"fp8_e5m2", 1, 1}};
  return rows[static_cast<size_t>(storage)];
}
}  // namespace

const char* name(StorageType storage) { return row_of(storage).name; }
bool is_plain(StorageType storage) { return storage <= StorageType::f16; }
bool is_fp8(StorageType storage) { return storage == StorageType::fp8_e4m3 || storage == StorageType::fp8_e5m2; }
bool is_block(StorageType storage) { return block_elements(storage) > 1; }
int64_t block_elements(StorageType storage) { return row_of(storage).elements; }
size_t block_bytes(StorageType storage) { return row_of(storage).bytes; }

size_t row_bytes(StorageType storage, int64_t in) {
  if (is_fp8(storage)) return fp8_row_bytes(in);
  if (in % block_elements(storage) != 0) {
    throw_error(ErrorKind::unsupported, "a row of {} elements is not a multiple of the {} block size {}", in,
                name(storage), block_elements(storage));
  }
  return static_cast<size_t>(in / block_elements(storage)) * block_bytes(storage);
}

Weight Weight::slice(int64_t begin, int64_t end) const {
  if (begin < 0 || begin > end || end > out) {
    throw_error(ErrorKind::internal, "rows {} to {} are out of range of a weight of {}", begin, end, out);
  }
  Weight part = *this;
  part.data = static_cast<const std::byte*>(data) + static_cast<size_t>(begin) * row_bytes(storage, in);
  part.out = end - begin;
  return part;
}

Tensor Weight::tensor() const {
  const auto view = [&](DType dtype) { return Tensor{const_cast<void*>(data), dtype, Shape{out, in}, device}; };
  switch (storage) {
    case StorageType::f32: return view(DType::f32);
    case StorageType::bf16: return view(DType::bf16);
    case StorageType::f16: return view(DType::f16);
    default: throw_error(ErrorKind::internal, "a {} weight read as a plain tensor", name(storage));
  }
}

std::string Weight::text() const { return fmt::format("{}[{}, {}]", name(storage), out, in); }

Weight weight_of(const Tensor& matrix) {
  if (matrix.shape.rank() != 2) throw_error(ErrorKind::internal, "{} cannot be a weight", matrix.text());
  StorageType storage{};
  switch (matrix.dtype) {
    case DType::f32: storage = StorageType::f32; break;
    case DType::bf16: storage = StorageType::bf16; break;
    case DType::f16: storage = StorageType::f16; break;
    default: throw_error(ErrorKind::internal, "{} cannot be a weight", matrix.text());
  }
  return Weight{storage, matrix.data, matrix.shape[0], matrix.shape[1], matrix.device};
}

}  // namespace ingot
