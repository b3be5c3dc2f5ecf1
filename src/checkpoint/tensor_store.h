// The tensors of a model's files, in a format-independent form: name, type, shape and the mapped bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_watch.h"
#include "checkpoint/model_source.h"
#include "formats/gguf.h"
#include "formats/safetensors_set.h"
#include "tensor/weight.h"

namespace ingot::checkpoint {

struct StoredTensor {
  std::string name;                    // as in the file
  std::string dtype;                   // as in the file: "BF16", "Q4_1"
  std::optional<StorageType> storage;  // absent for types that Ingot does not compute with
  std::vector<int64_t> shape;          // outermost first
  std::span<const std::byte> bytes;
  std::string file;  // for messages

  int64_t rows() const;  // all dimensions but the last; 1 for a vector or scalar
  int64_t row_elements() const;
  std::string text() const;  // "BF16 [2, 3]"
};

// Owns the file maps; not movable, shared by objects that point into them.
class TensorStore {
 public:
  // Errors: those of SafetensorsSet and GgufSet; not_found for a folder without weights.
  explicit TensorStore(const ModelSource& source);
  TensorStore(const TensorStore&) = delete;
  TensorStore& operator=(const TensorStore&) = delete;

  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // ascending name
  const StoredTensor* find(std::string_view name) const;                 // null when there is none
  // Errors: not_found, naming file and tensor.
  const StoredTensor& at(std::string_view name) const;
  const formats::GgufSet* gguf() const { return gguf_.get(); }  // null for safetensors
  const std::filesystem::path& path() const { return path_; }
  std::shared_ptr<const FileWatch> watch() const;  // of all its files

 private:
  std::filesystem::path path_;
  std::unique_ptr<formats::SafetensorsSet> safetensors_;
  std::unique_ptr<formats::GgufSet> gguf_;
  std::vector<StoredTensor> tensors_;
};

std::string shape_text(std::span<const int64_t> shape);  // "[2, 3]"

}  // namespace ingot::checkpoint
