// Bounds-checked reader of safetensors files. It does not interpret tensors.
// Format: github.com/huggingface/safetensors (u64 little-endian header size, JSON header, data).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace ingot::formats {

// One tensor. `bytes` is row-major little-endian and points into its file (no copy, no guaranteed alignment); it is
// valid as long as the SafetensorsFile (moving that keeps it valid).
struct TensorEntry {
  std::string name;
  std::string dtype;           // as in the file: "F32", "BF16", ... one of the 22 names of the format
  std::vector<int64_t> shape;  // outermost first; empty for a scalar; every dimension >= 0
  std::span<const std::byte> bytes;
};

// Bits per element of a safetensors dtype; 0 for an unknown name.
int safetensors_bits(std::string_view dtype);

// Bytes of a tensor of this dtype and shape. Errors: `unsupported` for an unknown dtype, `corrupt` when the product of
// the dimensions overflows, is negative or is not a whole number of bytes. Messages begin with `what`, for example
// "f.safetensors: tensor 'a'".
uint64_t safetensors_size(std::string_view dtype, std::span<const int64_t> shape, std::string_view what);

// One file. Every rule of the format is checked when it is opened: header size within the file and at most 100,000,000,
// UTF-8 JSON without duplicate keys, known dtypes, tensors that cover the data exactly, without holes or overlaps.
// Values (NaN, Inf) are not checked. Time and memory are linear in the size of the header.
// Errors: `corrupt` naming file and tensor; those of MappedFile.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  // Reads bytes in memory, which must outlive this; `source` replaces the path in messages.
  SafetensorsFile(std::span<const std::byte> bytes, std::string source);

  // In file order: ascending offset, then end, then name.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  const TensorEntry* find(std::string_view name) const;  // null when there is none
  const TensorEntry& at(std::string_view name) const;    // Errors: not_found naming file and tensor
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& source() const { return source_; }
  const MappedFile& file() const { return file_; }  // empty for bytes in memory

 private:
  void parse(std::span<const std::byte> bytes);

  MappedFile file_;
  std::string source_;
  std::vector<TensorEntry> entries_;
  std::vector<size_t> by_name_;  // indices into entries_, ascending name
  std::map<std::string, std::string> metadata_;
};

}  // namespace ingot::formats
