#include "tensor/arena.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace ingot {

size_t Arena::footprint(DType dtype, const Shape& shape) {
  return footprint(static_cast<size_t>(shape.elements()) * size_of(dtype));
}

Arena::Arena(Device& device, size_t bytes, std::string label) : label_(std::move(label)) {
  try {
    buffer_ = Buffer(device, bytes);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{} on {}: {}", label_, device.name(), error.message()), error.hint());
  }
}

void* Arena::allocate_bytes(size_t bytes) {
  const size_t size = footprint(bytes);
  if (size > capacity() - used_) {
    throw_error(ErrorKind::internal, "arena '{}' of {} bytes has {} left, {} wanted", label_, capacity(),
                capacity() - used_, size);
  }
  void* data = static_cast<std::byte*>(buffer_.data()) + used_;
  used_ += size;
  peak_ = std::max(peak_, used_);
  return data;
}

Tensor Arena::allocate(DType dtype, Shape shape) {
  void* data = allocate_bytes(static_cast<size_t>(shape.elements()) * size_of(dtype));
  return Tensor{data, dtype, shape, buffer_.device()};
}

void Arena::release(size_t mark) {
  if (mark > used_) throw_error(ErrorKind::internal, "arena '{}' released to {} of {}", label_, mark, used_);
  used_ = mark;
}

}  // namespace ingot
