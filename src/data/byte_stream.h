// Reads a file's bytes in order and decompresses them: plain, gzip (RFC 1952) and Zstandard (RFC 8878), recognised by
// the first bytes.
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
  // `path` may also be remote (http(s)://, s3://). Errors: not_found when there is no such file and for a folder;
  // unsupported for Parquet and other known formats that are not supported (the hint says what to do); corrupt for a
  // name ending in .gz or .zst whose contents are not compressed like that.
  explicit ByteStream(const std::filesystem::path& path);
  ByteStream(ByteStream&&) noexcept;
  ByteStream& operator=(ByteStream&&) noexcept;
  ~ByteStream();

  // Fills `out` from its start and returns the number of bytes written; 0 only at the end of the file (for a non-empty
  // `out`). Memory use is bounded for any file. Errors: corrupt for damaged or truncated compressed data; unsupported
  // for Zstandard data that needs a dictionary or a window over 128 MiB; not_found when the system cannot read.
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

// Lines of a stream, without line ends (LF or CRLF) and without a UTF-8 byte order mark at the very start.
class LineReader {
 public:
  static constexpr size_t max_line_bytes = size_t{64} << 20;

  // `max_text_bytes`: maximum size of the result of rest().
  explicit LineReader(ByteStream stream, size_t max_text_bytes = size_t{1} << 30);

  // False at the end. A last line without LF counts as a line. A line of more than max_line_bytes is skipped: `line` is
  // empty and too_long() is true. Errors: as ByteStream::read; unsupported when the decompressed data is of an
  // unsupported format.
  bool next(std::string& line);
  bool too_long() const { return too_long_; }

  // The first byte of the remaining data that is not white space, without consuming it; '\0' when the buffer has none.
  char peek();
  // All remaining data, byte for byte (except for a byte order mark at the very start). Errors: as ByteStream::read;
  // resource for more than max_text_bytes.
  std::string rest();

  int64_t line_number() const { return line_number_; }  // of the line returned last, from 1
  const std::filesystem::path& path() const { return stream_.path(); }

 private:
  bool refill();

  ByteStream stream_;
  size_t max_text_bytes_;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;  // remaining data in buffer_
  int64_t line_number_ = 0;
  bool too_long_ = false;
};

}  // namespace ingot::data
