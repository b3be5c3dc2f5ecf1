// Writer of GGUF v3 files.
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

struct GgufDeclaration {
  std::string name;  // at most 64 bytes
  GgufType type = GgufType::f32;
  std::vector<int64_t> dims;  // innermost first
};

// Writes PATH through FileWriter: complete or absent. Key-values and tensors keep their order. All tensors are declared
// first; then their data is streamed in that order, each tensor in one or more calls. Every tensor, including the last,
// is padded with zero bytes to `general.alignment` (u32 in the metadata; 32 when missing).
class GgufWriter {
 public:
  // Errors: `internal` for a duplicate or too long name or an alignment that is not a multiple of 8; those of gguf_size
  // and FileWriter.
  GgufWriter(std::filesystem::path path, const GgufMetadata& metadata, std::vector<GgufDeclaration> tensors);

  const std::vector<GgufDeclaration>& tensors() const { return tensors_; }

  // Appends bytes (rows of blocks) to tensor `name`, which must be the first incomplete one. Tensors without elements
  // need no call. Errors: `internal` for a tensor out of order or too many bytes.
  void write(std::string_view name, std::span<const std::byte> bytes);

  // Publishes the file. Errors: `internal` naming the first incomplete tensor.
  void finish();

 private:
  void skip_complete();
  void pad();

  std::filesystem::path path_;
  std::vector<GgufDeclaration> tensors_;
  std::vector<uint64_t> sizes_;  // bytes of tensors_[i] without padding
  FileWriter file_;
  uint64_t alignment_ = 32;
  size_t next_ = 0;       // the tensor being written
  uint64_t written_ = 0;  // bytes of tensors_[next_] so far
};

}  // namespace ingot::formats
