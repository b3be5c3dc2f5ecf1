#include "formats/safetensors_set.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/path.h"
#include "formats/printable.h"
#include "formats/unique_json.h"

namespace ingot::formats {
namespace {

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

uint64_t total_size(const nlohmann::json& document) {
  const auto metadata = document.find("metadata");
  if (metadata == document.end() || !metadata->is_object()) return 0;
  const auto size = metadata->find("total_size");
  return size != metadata->end() && size->is_number_unsigned() ? size->get<uint64_t>() : 0;
}

}  // namespace

SafetensorsIndex read_safetensors_index(const std::filesystem::path& path) {
  const std::string source = path.string();
  const nlohmann::json document = parse_unique_json(read_file(path), source);
  if (!document.is_object()) throw_error(ErrorKind::corrupt, "{}: not a JSON object", source);
  const auto map = document.find("weight_map");
  if (map == document.end() || !map->is_object())
    throw_error(ErrorKind::corrupt, "{}: has no object weight_map", source);
  SafetensorsIndex index;
  index.total_size = total_size(document);
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>())) {
      throw_error(ErrorKind::corrupt, "{}: the file of tensor {} is not a file in the same folder", source,
                  printable(tensor));
    }
    index.weight_map.emplace(tensor, file.get<std::string>());
  }
  return index;
}

void write_safetensors_index(const std::filesystem::path& path, const SafetensorsIndex& index) {
  const nlohmann::json document = {{"metadata", {{"total_size", index.total_size}}}, {"weight_map", index.weight_map}};
  write_file(path, document.dump(2, ' ', true) + "\n");
}

std::string safetensors_shard_name(int64_t shard, int64_t num_shards, std::string_view stem) {
  if (num_shards == 1) return fmt::format("{}.safetensors", stem);
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, shard, num_shards);
}

std::vector<std::vector<TensorDeclaration>> split_into_shards(std::span<const TensorDeclaration> tensors,
                                                              uint64_t limit) {
  std::vector<std::vector<TensorDeclaration>> shards;
  std::vector<TensorDeclaration> current;
  uint64_t current_size = 0;
  for (const TensorDeclaration& tensor : tensors) {
    const uint64_t size = safetensors_size(tensor.dtype, tensor.shape, printable(tensor.name));
    if (size > limit) {
      shards.push_back({tensor});
      continue;
    }
    if (size > limit - current_size) {
      shards.push_back(std::move(current));
      current.clear();
      current_size = 0;
    }
    current.push_back(tensor);
    current_size += size;
  }
  if (!current.empty() || shards.empty()) shards.push_back(std::move(current));
  return shards;
}

SafetensorsSet::SafetensorsSet(const std::filesystem::path& path, std::string_view stem) : path_(path) {
  const std::filesystem::path single = path / fmt::format("{}.safetensors", stem);
  const std::filesystem::path index = path / fmt::format("{}.safetensors.index.json", stem);
  if (!is_folder(path)) {
    if (path.extension() == ".json") {
      open_index(path);
    } else {
      files_.emplace_back(path);
    }
  } else if (path_exists(single)) {
    files_.emplace_back(single);
  } else if (path_exists(index)) {
    open_index(index);
  } else {
    throw_hint(ErrorKind::not_found, "give a folder in the Hugging Face layout with its weights as safetensors",
               "{}: there is neither {} nor {}", path.string(), single.filename().string(), index.filename().string());
  }
  if (entries_.empty()) {
    for (const SafetensorsFile& file : files_) {
      for (const TensorEntry& entry : file.entries()) entries_.push_back(&entry);
    }
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return a->name < b->name; });
}

void SafetensorsSet::open_index(const std::filesystem::path& index_path) {
  const SafetensorsIndex index = read_safetensors_index(index_path);
  std::map<std::string_view, size_t> shards;  // file name -> index in files_
  for (const auto& [tensor, file] : index.weight_map) {
    const auto [shard, is_new] = shards.emplace(file, files_.size());
    if (is_new) {
      const std::filesystem::path shard_path = index_path.parent_path() / file;
      if (!path_exists(shard_path)) {
        throw_hint(ErrorKind::not_found, "fetch the missing part of the model", "{}: shard {} is missing",
                   index_path.string(), shard_path.string());
      }
      files_.emplace_back(shard_path);
    }
  }
  for (const auto& [tensor, file] : index.weight_map) {
    const TensorEntry* entry = files_[shards.at(file)].find(tensor);
    if (entry == nullptr) {
      throw_error(ErrorKind::corrupt, "{}: tensor {} should be in {}, which does not hold it", index_path.string(),
                  printable(tensor), file);
    }
    entries_.push_back(entry);
  }
}

const TensorEntry* SafetensorsSet::find(std::string_view name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const TensorEntry* entry, std::string_view wanted) { return entry->name < wanted; });
  return found != entries_.end() && (*found)->name == name ? *found : nullptr;
}

const TensorEntry& SafetensorsSet::at(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) throw_error(ErrorKind::not_found, "{}: no tensor {}", path_.string(), printable(name));
  return *entry;
}

}  // namespace ingot::formats
