#include "formats/tensorboard.h"

#include <array>
#include <bit>
#include <concepts>

namespace ingot::formats {

namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);  // the polynomial, reflected
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> crc_table = make_table();

void put_bytes(std::string& to, std::unsigned_integral auto value) {
  for (size_t i = 0; i < sizeof value; ++i) to.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

// Protocol buffers' wire format (protobuf.dev/programming-guides/encoding): a field's tag is number * 8 + type.
enum class Wire : uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>((value & 0x7F) | 0x80));
  to.push_back(static_cast<char>(value));
}

void put_tag(std::string& to, uint32_t field, Wire wire) { put_varint(to, field << 3 | static_cast<uint32_t>(wire)); }

void put_text(std::string& to, uint32_t field, std::string_view text) {
  put_tag(to, field, Wire::bytes);
  put_varint(to, text.size());
  to += text;
}

// The first fields of an Event. A step of 0 is the default and is not written.
std::string event(double wall_time, int64_t step) {
  std::string bytes;
  put_tag(bytes, 1, Wire::fixed64);
  put_bytes(bytes, std::bit_cast<uint64_t>(wall_time));
  if (step != 0) {
    put_tag(bytes, 2, Wire::varint);
    put_varint(bytes, static_cast<uint64_t>(step));
  }
  return bytes;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) crc = crc >> 8 ^ crc_table[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U; }

std::string tfrecord(std::string_view bytes) {
  std::string record;
  put_bytes(record, uint64_t{bytes.size()});
  put_bytes(record, masked_crc32c(record));
  record += bytes;
  put_bytes(record, masked_crc32c(bytes));
  return record;
}

std::string tensorboard_version(double wall_time) {
  std::string bytes = event(wall_time, 0);
  put_text(bytes, 3, "brain.Event:2");
  return tfrecord(bytes);
}

std::string tensorboard_restart(double wall_time, int64_t step) {
  std::string start, bytes = event(wall_time, step);
  put_tag(start, 1, Wire::varint);
  put_varint(start, 1);
  put_text(bytes, 7, start);
  return tfrecord(bytes);
}

std::string tensorboard_scalars(double wall_time, int64_t step, std::span<const TensorboardScalar> scalars) {
  std::string summary;
  for (const TensorboardScalar& scalar : scalars) {
    std::string value;
    put_text(value, 1, scalar.tag);
    put_tag(value, 2, Wire::fixed32);
    put_bytes(value, std::bit_cast<uint32_t>(scalar.value));
    put_text(summary, 1, value);
  }
  std::string bytes = event(wall_time, step);
  put_text(bytes, 5, summary);
  return tfrecord(bytes);
}

}  // namespace ingot::formats
