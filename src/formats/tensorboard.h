// TensorBoard's event files, as far as scalars go: TFRecord framing around protocol buffers, both written by hand.
//
// A record (tensorflow, core/lib/io/record_writer.h): u64 n; u32 masked CRC-32C of those 8 bytes; n bytes; u32 masked
// CRC-32C of the n bytes; little-endian. Its bytes are an Event (tensorflow, core/util/event.proto): field 1 wall_time,
// double; 2 step, int64; 3 file_version, string; 5 summary; 7 session_log. Summary (core/framework/summary.proto)
// repeats field 1: a Value of field 1 tag, string, and 2 simple_value, float. SessionLog's field 1 is status, START 1.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ingot::formats {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);
// As records carry it: rotated and shifted, since a CRC of data that holds CRCs is weak.
uint32_t masked_crc32c(std::string_view bytes);
std::string tfrecord(std::string_view bytes);

struct TensorboardScalar {
  std::string_view tag;
  float value = 0;
};

// Records, framed. `wall_time`: seconds since 1970.
std::string tensorboard_version(double wall_time);  // the first of a file
// Steps from `step` on that earlier files hold are forgotten by the reader.
std::string tensorboard_restart(double wall_time, int64_t step);
std::string tensorboard_scalars(double wall_time, int64_t step, std::span<const TensorboardScalar> scalars);

}  // namespace ingot::formats
