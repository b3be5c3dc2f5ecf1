// Writer of safetensors files, byte-identical to the official library's layout.
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

struct TensorDeclaration {
  std::string name;
  std::string dtype;           // a safetensors dtype name
  std::vector<int64_t> shape;  // outermost first
};

// Writes `path` through FileWriter: the file appears only when it is complete. All tensors are declared first; then
// their data is streamed in layout order (descending dtype rank, then ascending name), each tensor in one or more
// calls.
//
//   SafetensorsWriter writer(path, declarations);
//   for (const TensorDeclaration& tensor : writer.layout()) writer.write(tensor.name, bytes_of(tensor));
//   writer.finish();
class SafetensorsWriter {
 public:
  // The default metadata is what transformers requires. Errors: `internal` for a duplicate or reserved name and for one
  // that is not UTF-8; those of safetensors_size and FileWriter.
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorDeclaration> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  const std::vector<TensorDeclaration>& layout() const { return layout_; }

  // Appends bytes (row-major, little-endian) to tensor `name`, which must be the first incomplete one in layout().
  // Tensors without elements need no call. Errors: `internal` for a tensor out of order or too many bytes.
  void write(std::string_view name, std::span<const std::byte> bytes);

  // Publishes the file. Errors: `internal` naming the first incomplete tensor.
  void finish();

 private:
  void skip_complete();

  std::filesystem::path path_;
  std::vector<TensorDeclaration> layout_;
  std::vector<uint64_t> sizes_;  // bytes of layout_[i]
  FileWriter file_;
  size_t next_ = 0;       // the tensor being written
  uint64_t written_ = 0;  // bytes of layout_[next_] so far
};

}  // namespace ingot::formats
