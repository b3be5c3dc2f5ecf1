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
  // Errors: not_found when there is no such file, usage for a folder, unsupported for Parquet, corrupt for a name
  // ending in .gz or .zst whose bytes are of another kind.
  explicit ByteStream(std::filesystem::path path);
  ByteStream(ByteStream&&) noexcept;
  ByteStream& operator=(ByteStream&&) noexcept;
  ~ByteStream();

  // Fills `out` from its start and returns how many bytes it holds now; 0 only at the end of the file (for a non-empty
  // `out`). Errors: corrupt for damaged or cut-off compressed data, not_found when the system cannot read.
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
  explicit LineReader(ByteStream stream);

  // False at the end. A last line without LF counts; nothing after the last LF does not.
  // Errors: as ByteStream::read; resource for a line of more than 1 GiB.
  bool next(std::string& line);

  // The first byte of what is left that is not white space, without taking it; '\0' when a buffer shows none.
  char peek();
  // All that is left, byte for byte (but for a byte order mark at the very start). Errors: as ByteStream::read.
  std::string rest();

  int64_t line_number() const { return line_number_; }  // of the line given last, from 1
  const std::filesystem::path& path() const { return stream_.path(); }

 private:
  bool refill();

  ByteStream stream_;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;  // of what is left in buffer_
  int64_t line_number_ = 0;
};

}  // namespace ingot::data
