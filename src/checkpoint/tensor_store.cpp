#include "checkpoint/tensor_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/row_codec.h"

namespace ingot::checkpoint {

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t StoredTensor::rows() const {
  int64_t count = 1;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) count *= shape[axis];
  return count;
}

int64_t StoredTensor::row_elements() const { return shape.empty() ? 1 : shape.back(); }

std::string StoredTensor::text() const { return fmt::format("{} {}", dtype, shape_text(shape)); }

TensorStore::TensorStore(const ModelSource& source) : path_(source.path) {
  if (source.kind == SourceKind::hugging_face) {
    safetensors_ = std::make_unique<formats::SafetensorsSet>(source.path);
    // Entries of the set point into its files; an index may omit some tensors of those files.
    const std::vector<const formats::TensorEntry*>& wanted = safetensors_->entries();
    for (const formats::SafetensorsFile& file : safetensors_->files()) {
      for (const formats::TensorEntry& entry : file.entries()) {
        const auto found =
            std::lower_bound(wanted.begin(), wanted.end(), entry.name,
                             [](const formats::TensorEntry* a, const std::string& name) { return a->name < name; });
        if (found == wanted.end() || *found != &entry) continue;
        tensors_.push_back(
            {entry.name, entry.dtype, storage_from_file(entry.dtype), entry.shape, entry.bytes, file.source()});
      }
    }
  } else {
    gguf_ = std::make_unique<formats::GgufSet>(source.path);
    for (const formats::GgufFile& file : gguf_->files()) {
      for (const formats::GgufTensor& tensor : file.tensors()) {
        const std::string type(formats::info(tensor.type).name);
        tensors_.push_back({tensor.name, type, storage_from_file(type), tensor.shape(), tensor.bytes, file.source()});
      }
    }
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
}

std::shared_ptr<const FileWatch> TensorStore::watch() const {
  auto watch = std::make_shared<FileWatch>();
  if (safetensors_) {
    for (const formats::SafetensorsFile& file : safetensors_->files()) watch->add(file.file());
  }
  if (gguf_) {
    for (const formats::GgufFile& file : gguf_->files()) watch->add(file.file());
  }
  return watch;
}

const StoredTensor* TensorStore::find(std::string_view name) const {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const StoredTensor& a, std::string_view wanted) { return a.name < wanted; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

const StoredTensor& TensorStore::at(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) {
    throw_error(ErrorKind::not_found, "{}: there is no tensor '{}'", path_.string(), name);
  }
  return *tensor;
}

}  // namespace ingot::checkpoint
