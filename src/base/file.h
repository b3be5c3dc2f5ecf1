// Files: read-only memory maps, reads of whole files, and atomic writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_range.h"

namespace ingot {

// A guarded read-only memory map of a whole file (base/mapped_range.h). Movable, not copyable; the file stays mapped
// until the last copy of range() is destroyed.
class MappedFile {
 public:
  MappedFile() = default;
  // Errors: those of open_regular_file (not_found when it does not exist or cannot be read) and MappedRange (resource).
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&&) noexcept = default;
  MappedFile& operator=(MappedFile&&) noexcept = default;

  std::span<const std::byte> bytes() const { return range_ ? range_->bytes() : std::span<const std::byte>(); }
  const std::filesystem::path& path() const { return path_; }
  const std::shared_ptr<const MappedRange>& range() const { return range_; }  // null for an empty file

 private:
  std::filesystem::path path_;
  std::shared_ptr<const MappedRange> range_;
};

// The whole contents. Errors as MappedFile; also `resource` when larger than `limit` bytes.
std::string read_file(const std::filesystem::path& path, uint64_t limit = uint64_t{1} << 32);

// An output file. Bytes go to PATH.partial; `publish` flushes, fsyncs, renames it to PATH and fsyncs the folder.
// Destroyed without `publish`, it removes the partial file. Errors: resource for a full disk (naming path and number of
// bytes), unavailable for a read-only or missing folder.
// `resume` is for downloads: it appends to the PATH.partial of an earlier writer, keeps that file when destroyed unless
// it is empty, and locks it until it is removed or published: a second writer is refused (unavailable).
enum class WriteMode { fresh, resume };

class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path path, WriteMode mode = WriteMode::fresh);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  // Errors: corrupt, naming the source file, when `bytes` are of a mapped file that was truncated.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  uint64_t offset() const { return offset_; }  // length of the partial file so far
  const std::filesystem::path& partial() const { return partial_; }
  // Cuts the partial file to its first `bytes`. REQUIRES bytes <= offset().
  void cut(uint64_t bytes);
  // Errors: also those of check_mapped_files, so that zeros in place of unreadable bytes are never published.
  void publish();
  void remove();  // removes the partial file, also with `resume`

 private:
  void open();

  std::filesystem::path path_;
  std::filesystem::path partial_;
  WriteMode mode_;
  int fd_ = -1;
  uint64_t offset_ = 0;
};

// FileWriter with one write.
void write_file(const std::filesystem::path& path, std::string_view text);

// fsyncs a folder, so that a rename inside it survives a power failure.
void sync_folder(const std::filesystem::path& folder);

// Lower-case hex SHA-256.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256();
  void update(std::span<const std::byte> bytes);
  std::string hex();  // ends the digest; call once

 private:
  void* context_;
};
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace ingot
