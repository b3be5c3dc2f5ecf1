// A bounded cache from pre-tokens to their ids, shared by threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ingot::text {

class WordCache {
 public:
  // Longer pieces are not worth keeping.
  static constexpr size_t max_word_bytes = 48;

  // Appends the ids of `word` and returns true, or returns false when they are not known.
  bool find(std::string_view word, std::vector<int32_t>& out) {
    Shard& shard = shard_of(word);
    const std::scoped_lock lock(shard.mutex);
    const auto found = shard.words.find(word);
    if (found == shard.words.end()) return false;
    out.insert(out.end(), found->second.begin(), found->second.end());
    return true;
  }

  // A full shard keeps what it has: frequent words come early.
  void insert(std::string_view word, const int32_t* ids, size_t num_ids) {
    Shard& shard = shard_of(word);
    const std::scoped_lock lock(shard.mutex);
    if (shard.words.size() < max_words_per_shard) shard.words.try_emplace(std::string(word), ids, ids + num_ids);
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return std::hash<std::string_view>{}(word); }
  };
  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::string, std::vector<int32_t>, Hash, std::equal_to<>> words;
  };
  static constexpr size_t num_shards = 16;
  static constexpr size_t max_words_per_shard = 4096;

  Shard& shard_of(std::string_view word) { return shards_[Hash{}(word) >> 7 & (num_shards - 1)]; }

  std::array<Shard, num_shards> shards_;
};

}  // namespace ingot::text
