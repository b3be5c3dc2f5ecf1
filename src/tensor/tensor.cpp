#include "tensor/tensor.h"

#include <fmt/format.h>

#include "base/error.h"

namespace ingot {

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > dims_.size()) throw_error(ErrorKind::internal, "a shape has {} dimensions, at most 4", dims.size());
  for (int64_t dim : dims) {
    if (dim < 0) throw_error(ErrorKind::internal, "a shape has the negative dimension {}", dim);
    dims_[static_cast<size_t>(rank_++)] = dim;
  }
}

int64_t Shape::elements() const {
  int64_t count = 1;
  for (int64_t dim : dims()) count *= dim;
  return count;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(dims().begin(), dims().end(), other.dims().begin());
}

std::string Shape::text() const { return fmt::format("[{}]", fmt::join(dims(), ", ")); }

int64_t Tensor::row_elements() const {
  int64_t count = 1;
  for (int axis = 1; axis < shape.rank(); ++axis) count *= shape[axis];
  return count;
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  if (shape.rank() == 0 || begin < 0 || begin > end || end > shape[0]) {
    throw_error(ErrorKind::internal, "rows {} to {} are out of range of {}", begin, end, text());
  }
  std::array<int64_t, 4> dims{};
  std::copy(shape.dims().begin(), shape.dims().end(), dims.begin());
  dims[0] = end - begin;
  Tensor part = *this;
  part.shape = Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(shape.rank())));
  part.data = static_cast<std::byte*>(data) + static_cast<size_t>(begin * row_elements()) * size_of(dtype);
  return part;
}

Tensor Tensor::reshape(Shape other) const {
  if (other.elements() != elements()) throw_error(ErrorKind::internal, "{} as {}", text(), other.text());
  Tensor view = *this;
  view.shape = other;
  return view;
}

namespace {

template <class T>
constexpr bool matches(DType dtype);
template <>
constexpr bool matches<float>(DType dtype) {
  return dtype == DType::f32;
}
template <>
constexpr bool matches<double>(DType dtype) {
  return dtype == DType::f64;
}
template <>
constexpr bool matches<uint16_t>(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16;
}
template <>
constexpr bool matches<int8_t>(DType dtype) {
  return dtype == DType::i8;
}
template <>
constexpr bool matches<uint8_t>(DType dtype) {
  return dtype == DType::u8;
}
template <>
constexpr bool matches<int32_t>(DType dtype) {
  return dtype == DType::i32;
}
template <>
constexpr bool matches<int64_t>(DType dtype) {
  return dtype == DType::i64;
}

}  // namespace

template <class T>
T* Tensor::as() const {
  if (!matches<T>(dtype)) throw_error(ErrorKind::internal, "{} read as elements of another type", text());
  return static_cast<T*>(data);
}

template float* Tensor::as<float>() const;
template double* Tensor::as<double>() const;
template uint16_t* Tensor::as<uint16_t>() const;
template int8_t* Tensor::as<int8_t>() const;
template uint8_t* Tensor::as<uint8_t>() const;
template int32_t* Tensor::as<int32_t>() const;
template int64_t* Tensor::as<int64_t>() const;

std::string call_text(const char* op, std::span<const Operand> operands) {
  std::string all;
  for (const Operand& operand : operands) {
    all += fmt::format("{}{}{}", all.empty() ? "" : ", ", operand.type, operand.shape.text());
  }
  return fmt::format("{}({})", op, all);
}

std::string Tensor::text() const {
  return fmt::format("{}{} on {}", ingot::name(dtype), shape.text(), device ? device->name() : "no device");
}

Buffer::Buffer(Device& device, size_t bytes)
    : device_(&device), data_(bytes ? device.allocate(bytes) : nullptr), bytes_(bytes) {}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_) device_->release(data_, bytes_);
}

Tensor Buffer::view(DType dtype, Shape shape, size_t offset) const {
  const size_t size = static_cast<size_t>(shape.elements()) * size_of(dtype);
  if (offset % size_of(dtype) != 0 || offset > bytes_ || size > bytes_ - offset) {
    throw_error(ErrorKind::internal, "invalid view of {}{} at byte {} of a buffer of {} bytes", ingot::name(dtype),
                shape.text(), offset, bytes_);
  }
  return Tensor{static_cast<std::byte*>(data_) + offset, dtype, shape, device_};
}

namespace {
Tensor host_view(const void* data, DType dtype, size_t count, const Device& cpu) {
  if (!cpu.host_visible()) throw_error(ErrorKind::internal, "cannot make a host view on {}", cpu.name());
  return Tensor{const_cast<void*>(data), dtype, Shape{static_cast<int64_t>(count)}, &cpu};
}
}  // namespace

Tensor view_of(std::span<const int32_t> values, const Device& cpu) {
  return host_view(values.data(), DType::i32, values.size(), cpu);
}

Tensor view_of(std::span<const float> values, const Device& cpu) {
  return host_view(values.data(), DType::f32, values.size(), cpu);
}

}  // namespace ingot
