// A file's bytes in order, decompressed on the way: plain, gzip (RFC 1952) and Zstandard (RFC 8878), told apart by
// their first bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace ingot::data {

class ByteStream {
 public:
  // `path`: also of a remote file (http(s)://, s3://). Errors: not_found when there is no such file, usage for a
  // folder, unsupported for Parquet and other kinds that are known but not read (with what to do), corrupt for a name
  // ending in .gz or .zst whose bytes are of another kind.
  explicit ByteStream(const std::filesystem::path& path);
  ByteStream(ByteStream&&) noexcept;
  ByteStream& operator=(ByteStream&&) noexcept;
  ~ByteStream();

  // Fills `out` from its start and returns how many bytes it holds now; 0 only at the end of the file (for a non-empty
  // `out`). Memory is bounded whatever the file holds. Errors: corrupt for damaged or cut-off compressed data,
  // unsupported for Zstandard data that needs a dictionary or a window over 128 MiB, not_found when the system cannot
  // read.
  size_t read(std::span<char> out);

  const std::filesystem::path& path() const;

 private:
  class Raw;
  class Decoder;
  class Plain;
  class Gzip;
  class Zstd;
  std::unique_ptr<Decoder> decoder_;
};

// Lines of a stream, without their ends (LF or CRLF) and without a UTF-8 byte order mark at the very start.
class LineReader {
 public:
  static constexpr size_t max_line_bytes = size_t{64} << 20;

  // `max_text_bytes`: most that rest() gives.
  explicit LineReader(ByteStream stream, size_t max_text_bytes = size_t{1} << 30);

  // False at the end. A last line without LF counts; nothing after the last LF does not. A line of more than
  // max_line_bytes is passed over: `line` is empty and too_long() true. Errors: as ByteStream::read; unsupported when
  // what was compressed is of a kind that is not read.
  bool next(std::string& line);
  bool too_long() const { return too_long_; }

  // The first byte of what is left that is not white space, without taking it; '\0' when a buffer shows none.
  char peek();
  // All that is left, byte for byte (but for a byte order mark at the very start). Errors: as ByteStream::read;
  // resource for more than max_text_bytes.
  std::string rest();

  int64_t line_number() const { return line_number_; }  // of the line given last, from 1
  const std::filesystem::path& path() const { return stream_.path(); }

 private:
  bool refill();

  ByteStream stream_;
  size_t max_text_bytes_;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;  // of what is left in buffer_
  int64_t line_number_ = 0;
  bool too_long_ = false;
};

}  // namespace ingot::data
