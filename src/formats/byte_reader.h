// A cursor over the bytes of an untrusted file: never reads beyond the end, and never allocates more than the file can
// fill.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace ingot::formats {

static_assert(std::endian::native == std::endian::little, "values are copied as they lie in the file");

class ByteReader {
 public:
  // Messages begin with `source`, which must outlive the reader.
  ByteReader(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  // The next `size` bytes. Errors: `corrupt` naming `what` when there are fewer.
  std::span<const std::byte> take(uint64_t size, std::string_view what) {
    if (size > remaining()) {
      throw_error(ErrorKind::corrupt, "{}: {} needs {} bytes at offset {}, but the file has only {} more: cut short",
                  source_, what, size, position_, remaining());
    }
    const std::span<const std::byte> taken = bytes_.subspan(position_, size);
    position_ += size;
    return taken;
  }

  // A little-endian number.
  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  // A count of items that take at least `min_size` bytes each, so that no accepted count is larger than the file
  // allows.
  uint64_t count(uint64_t min_size, std::string_view what) {
    const uint64_t value = number<uint64_t>(what);
    if (value > remaining() / min_size) {
      throw_error(ErrorKind::corrupt, "{}: {} of {} is impossible: the file has only {} more bytes", source_, what,
                  value, remaining());
    }
    return value;
  }

  // A u64 length and that many bytes. The view points into the file.
  std::string_view string(std::string_view what) {
    const uint64_t size = number<uint64_t>(what);
    const std::span<const std::byte> taken = take(size, what);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& source_;
  size_t position_ = 0;
};

}  // namespace ingot::formats
