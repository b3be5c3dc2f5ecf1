#include "formats/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "formats/printable.h"
#include "formats/safetensors.h"
#include "formats/safetensors_dtype.h"

namespace ingot::formats {
namespace {

std::string quoted(const std::string& text, const std::filesystem::path& path) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw_error(ErrorKind::internal, "{}: {} is not UTF-8", path.string(), printable(text));
  }
}

std::vector<TensorDeclaration> in_layout_order(std::vector<TensorDeclaration> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorDeclaration& a, const TensorDeclaration& b) {
    const int rank_a = safetensors_rank(a.dtype);
    const int rank_b = safetensors_rank(b.dtype);
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
  return tensors;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<TensorDeclaration> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), layout_(in_layout_order(std::move(tensors))), file_(std::move(path)) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (header.back() != '{') header += ',';
      header += quoted(key, path_) + ':' + quoted(value, path_);
    }
    header += '}';
  }
  std::unordered_set<std::string_view> names;
  uint64_t offset = 0;
  for (const TensorDeclaration& tensor : layout_) {
    const std::string what = fmt::format("{}: tensor {}", path_.string(), printable(tensor.name));
    if (!names.insert(tensor.name).second) throw_error(ErrorKind::internal, "{}: declared twice", what);
    if (tensor.name == "__metadata__") throw_error(ErrorKind::internal, "{}: the name is reserved", what);
    const uint64_t size = safetensors_size(tensor.dtype, tensor.shape, what);
    uint64_t end = 0;
    if (__builtin_add_overflow(offset, size, &end)) throw_error(ErrorKind::internal, "{}: too much data", what);
    if (header.size() > 1) header += ',';
    header += quoted(tensor.name, path_) + ":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) header += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    header += fmt::format("],\"data_offsets\":[{},{}]}}", offset, end);
    sizes_.push_back(size);
    offset = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // aligns the data to 8 bytes

  std::string size_field;
  for (unsigned i = 0; i < 8; ++i) size_field += static_cast<char>(header.size() >> (8 * i) & 0xff);
  file_.write(size_field);
  file_.write(header);
}

void SafetensorsWriter::skip_complete() {
  while (next_ < layout_.size() && written_ == sizes_[next_]) {
    ++next_;
    written_ = 0;
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  skip_complete();
  if (next_ == layout_.size() || layout_[next_].name != name) {
    throw_error(ErrorKind::internal, "{}: tensor {} was written, but the next one is {}", path_.string(),
                printable(name), next_ == layout_.size() ? "none" : printable(layout_[next_].name));
  }
  if (bytes.size() > sizes_[next_] - written_) {
    throw_error(ErrorKind::internal, "{}: tensor {} has {} bytes, but {} more were written", path_.string(),
                printable(name), sizes_[next_], bytes.size() - (sizes_[next_] - written_));
  }
  file_.write(bytes);
  written_ += bytes.size();
}

void SafetensorsWriter::finish() {
  skip_complete();
  if (next_ != layout_.size()) {
    throw_error(ErrorKind::internal, "{}: tensor {} has only {} of {} bytes", path_.string(),
                printable(layout_[next_].name), written_, sizes_[next_]);
  }
  file_.publish();
}

}  // namespace ingot::formats
