// Scalars in TensorBoard's event files: TFRecord framing around protocol buffers, both encoded by hand.
//
// A record (tensorflow, core/lib/io/record_writer.h): u64 n; u32 masked CRC-32C of those 8 bytes; n bytes; u32 masked
// CRC-32C of the n bytes; little-endian. The n bytes are an Event, a protocol buffer with these fields (tensorflow,
// core/util/event.proto and core/framework/summary.proto):
//   Event          1 wall_time (double), 2 step (int64), 3 file_version (string), 5 Summary, 7 SessionLog
//   Summary        1 Summary.Value, repeated
//   Summary.Value  1 tag (string), 2 simple_value (float)
//   SessionLog     1 status (START is 1)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ingot::formats {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);
// As stored in records: rotated and offset by a constant, because the CRC of data that contains CRCs is weak.
uint32_t masked_crc32c(std::string_view bytes);
std::string tfrecord(std::string_view bytes);

struct TensorboardScalar {
  std::string_view tag;
  float value = 0;
};

// Each returns one framed record. `wall_time`: seconds since 1970.
std::string tensorboard_version(double wall_time);  // the first record of a file
// A SessionLog START: makes TensorBoard discard the steps >= `step` of earlier files.
std::string tensorboard_restart(double wall_time, int64_t step);
std::string tensorboard_scalars(double wall_time, int64_t step, std::span<const TensorboardScalar> scalars);

}  // namespace ingot::formats
