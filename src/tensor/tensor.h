// Tensor: a view of contiguous row-major elements. Buffer: the owner of device memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "tensor/device.h"
#include "tensor/dtype.h"

namespace ingot {

// Up to four dimensions, outermost first. A default Shape is a scalar (no dimensions, one element).
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);  // ErrorKind::internal for more than four or negative dimensions
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t elements() const;
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  bool operator==(const Shape& other) const;
  std::string text() const;  // "[2, 3]"

 private:
  std::array<int64_t, 4> dims_{};
  int rank_ = 0;
};

// A non-owning view. `data` is an address on `device` (host memory for the CPU); null data means "absent".
// Copying a Tensor copies the view; constness is not deep: an op's contract says which tensors it writes.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape{};
  const Device* device = nullptr;

  explicit operator bool() const { return data != nullptr; }
  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype); }
  int64_t rows() const { return shape[0]; }  // first dimension
  int64_t row_elements() const;              // elements per index of the first dimension

  // A view of rows [begin, end) of the first dimension.
  Tensor slice(int64_t begin, int64_t end) const;
  // The same memory with another shape of as many elements; internal error otherwise.
  Tensor reshape(Shape other) const;

  // Typed address; internal error when T is not the storage type of `dtype` (bf16 and f16 are stored as uint16_t).
  template <class T>
  T* as() const;

  std::string text() const;  // "bf16[2, 3] on cpu"
};

// How a message describes an argument of an op.
struct Operand {
  const char* type = "";  // "bf16", "q8_0"
  Shape shape{};
};
std::string call_text(const char* op, std::span<const Operand> operands);  // "rms_norm(bf16[4, 64], f32[64])"

// Owns `bytes` bytes of zero-filled device memory, aligned to at least 64. Movable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, size_t bytes);  // ErrorKind::resource when out of memory, with the needed and free bytes
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device* device() const { return device_; }
  // A view of the whole buffer or of a part from byte `offset`; internal error when it does not fit or is misaligned.
  Tensor view(DType dtype, Shape shape, size_t offset = 0) const;

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Host values as a one-dimensional tensor on a host-visible device (a view; the caller keeps ownership).
Tensor view_of(std::span<const int32_t> values, const Device& cpu);
Tensor view_of(std::span<const float> values, const Device& cpu);

}  // namespace ingot
