// A checkpoint in one safetensors file or in shards with an index (the Hugging Face layout).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"

namespace ingot::formats {

// model.safetensors.index.json.
struct SafetensorsIndex {
  uint64_t total_size = 0;                        // bytes of all tensors; 0 when the file does not state it
  std::map<std::string, std::string> weight_map;  // tensor name -> file name (no folder)
};

// Errors: those of read_file; `corrupt` for an invalid index, duplicate tensors, and file names with a folder.
SafetensorsIndex read_safetensors_index(const std::filesystem::path& path);
// In the format of transformers: indented by two, keys sorted, ASCII. Errors: those of write_file.
void write_safetensors_index(const std::filesystem::path& path, const SafetensorsIndex& index);

// "model-00002-of-00003.safetensors" for (2, 3); "model.safetensors" for (1, 1). Shards count from 1.
std::string safetensors_shard_name(int64_t shard, int64_t num_shards, std::string_view stem = "model");

// Splits tensors, in the given order, into shards of at most `limit` bytes (a larger tensor has its own shard),
// greedily, as transformers does. Returns the tensors of each shard; one empty shard when there are no tensors.
std::vector<std::vector<TensorDeclaration>> split_into_shards(std::span<const TensorDeclaration> tensors,
                                                              uint64_t limit);

// The tensors of a folder: STEM.safetensors, else STEM.safetensors.index.json and its shards. Tensors that are missing
// from an index are ignored. Movable; entries are valid as long as the set.
class SafetensorsSet {
 public:
  // `path`: the folder, or one .safetensors file, or an index file.
  // Errors: not_found for a folder without weights or a missing shard; `corrupt` when the file that the index names for
  // a tensor does not have it; those of SafetensorsFile.
  explicit SafetensorsSet(const std::filesystem::path& path, std::string_view stem = "model");

  // Ascending name.
  const std::vector<const TensorEntry*>& entries() const { return entries_; }
  const TensorEntry* find(std::string_view name) const;  // null when there is none
  const TensorEntry& at(std::string_view name) const;    // Errors: not_found
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void open_index(const std::filesystem::path& index_path);

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::vector<const TensorEntry*> entries_;
};

}  // namespace ingot::formats
