// Bounds-checked reader of GGUF v3 and v2 files. It does not interpret keys or tensors.
// Format: github.com/ggml-org/ggml, docs/gguf.md. Little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "formats/gguf_metadata.h"
#include "formats/gguf_type.h"

namespace ingot::formats {

// One tensor; `bytes` points into its file and is valid as long as the file (moving the file keeps it valid).
struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<int64_t> dims;         // innermost first, 1 to 4, as in the file
  std::span<const std::byte> bytes;  // rows of dims[0] elements in blocks, row-major

  std::vector<int64_t> shape() const { return {dims.rbegin(), dims.rend()}; }  // outermost first, as in PyTorch
};

// One file. Everything is validated when it is opened: magic, version, counts against the file size, unique keys and
// names, known types, dimensions, alignment, and that every tensor is inside the file and none overlaps another. Files
// without tensors (vocabulary only) are valid. Time and memory are linear in the size of the part before the tensor
// data.
// Errors: `corrupt` naming file and key or tensor; `unsupported` for big-endian files, other versions, and unknown
// tensor or value types; those of MappedFile.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);
  // Reads bytes in memory, which must outlive this; `source` replaces the path in messages.
  GgufFile(std::span<const std::byte> bytes, std::string source);

  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  const GgufMetadata& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in file order
  const GgufTensor* find(std::string_view name) const;                 // null when there is none
  const GgufTensor& at(std::string_view name) const;                   // Errors: not_found naming file and tensor
  const std::string& source() const { return source_; }
  const MappedFile& file() const { return file_; }  // empty for bytes in memory

 private:
  void parse(std::span<const std::byte> bytes);

  MappedFile file_;
  std::string source_;
  uint32_t version_ = 0;
  uint32_t alignment_ = 32;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  std::vector<size_t> by_name_;  // indices into tensors_, ascending name
};

// A model in one file or split into NAME-00001-of-0000N.gguf. The first part's metadata is the model's.
class GgufSet {
 public:
  // `path`: the file, or any of its parts. Errors: not_found for a missing part; `corrupt` for parts that do not belong
  // together, for a tensor in two parts and for a wrong total number of tensors; those of GgufFile.
  explicit GgufSet(const std::filesystem::path& path);

  const GgufMetadata& metadata() const { return files_.front().metadata(); }
  const std::vector<const GgufTensor*>& tensors() const { return tensors_; }  // ascending name
  const GgufTensor* find(std::string_view name) const;                        // null when there is none
  const GgufTensor& at(std::string_view name) const;                          // Errors: not_found
  const std::vector<GgufFile>& files() const { return files_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::vector<GgufFile> files_;
  std::vector<const GgufTensor*> tensors_;
};

}  // namespace ingot::formats
