#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/path.h"
#include "formats/gguf.h"
#include "formats/printable.h"

namespace ingot::formats {
namespace {

// The parts of a name such as PREFIX-00002-of-00003.gguf.
struct PartName {
  std::string prefix;
  int64_t part = 0;
  int64_t num_parts = 0;
};

std::optional<PartName> parse_part_name(const std::string& name) {
  constexpr std::string_view pattern = "-00000-of-00000.gguf";
  if (name.size() <= pattern.size()) return std::nullopt;
  const std::string_view tail = std::string_view(name).substr(name.size() - pattern.size());
  const auto digits = [&](size_t begin) -> int64_t {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(tail.data() + begin, tail.data() + begin + 5, value);
    return error == std::errc() && end == tail.data() + begin + 5 ? value : -1;
  };
  if (tail.front() != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf") return std::nullopt;
  PartName parts{name.substr(0, name.size() - pattern.size()), digits(1), digits(10)};
  if (parts.part < 1 || parts.num_parts < parts.part) return std::nullopt;
  return parts;
}

}  // namespace

GgufSet::GgufSet(const std::filesystem::path& path) : path_(path) {
  files_.emplace_back(path);
  const int64_t num_parts = files_.front().metadata().integer("split.count", 1);
  if (num_parts > 1) {
    const std::optional<PartName> name = parse_part_name(path.filename().string());
    if (!name || name->num_parts != num_parts) {
      throw_hint(ErrorKind::corrupt, "restore the original names of the parts",
                 "{}: one of {} parts, but its name does not end like -00001-of-{:05}.gguf", path.string(), num_parts,
                 num_parts);
    }
    files_.clear();
    for (int64_t part = 1; part <= num_parts; ++part) {
      const std::filesystem::path part_path =
          path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", name->prefix, part, num_parts);
      if (!path_exists(part_path)) {
        throw_hint(ErrorKind::not_found, "fetch the missing part of the model", "{}: part {} of {} is missing",
                   part_path.string(), part, num_parts);
      }
      const GgufMetadata& metadata = files_.emplace_back(part_path).metadata();
      if (metadata.integer("split.no") != part - 1 || metadata.integer("split.count") != num_parts) {
        throw_error(ErrorKind::corrupt, "{}: found split.no {} of {}, expected part {} of {}", part_path.string(),
                    metadata.integer("split.no"), metadata.integer("split.count"), part, num_parts);
      }
    }
  }
  for (const GgufFile& file : files_) {
    for (const GgufTensor& tensor : file.tensors()) tensors_.push_back(&tensor);
  }
  const int64_t num_tensors = static_cast<int64_t>(tensors_.size());
  if (num_parts > 1 && metadata().integer("split.tensors.count", num_tensors) != num_tensors) {
    throw_error(ErrorKind::corrupt, "{}: {} tensors are declared, but the parts hold {}", path.string(),
                metadata().integer("split.tensors.count"), num_tensors);
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->name < b->name; });
  for (size_t i = 1; i < tensors_.size(); ++i) {
    if (tensors_[i]->name == tensors_[i - 1]->name) {
      throw_error(ErrorKind::corrupt, "{}: tensor {} is in two parts", path.string(), printable(tensors_[i]->name));
    }
  }
}

const GgufTensor* GgufSet::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const GgufTensor* tensor, std::string_view wanted) { return tensor->name < wanted; });
  return found != tensors_.end() && (*found)->name == name ? *found : nullptr;
}

const GgufTensor& GgufSet::at(std::string_view name) const {
  const GgufTensor* tensor = find(name);
  if (tensor == nullptr) throw_error(ErrorKind::not_found, "{}: no tensor {}", path_.string(), printable(name));
  return *tensor;
}

}  // namespace ingot::formats
