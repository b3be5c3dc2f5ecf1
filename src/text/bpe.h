// Byte-pair encoding: repeatedly merge the adjacent pair of lowest rank, the leftmost on ties, until no pair has a
// merge. Rules: the model BPE of github.com/huggingface/tokenizers.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/merge_borders.h"
#include "text/model.h"
#include "text/word_cache.h"

namespace ingot::text {

struct BpeOptions {
  bool byte_level = false;        // start from bytes; tokens and merges are given as bytes, not in the byte alphabet
  bool byte_fallback = false;     // an unknown character is encoded as <0xXX> byte tokens, if all of them exist
  bool ignore_merges = false;     // a pre-token that is in the vocabulary is emitted without merging
  bool fuse_unk = false;          // adjacent unknown characters become a single unk
  std::optional<int32_t> unk_id;  // without it, unknown characters are dropped
};

class BpeModel : public TokenModel {
 public:
  using Merge = std::pair<std::string, std::string>;

  // `tokens` are (piece, id); `merges` are in order of rank; `name` is for errors. Errors: corrupt when a piece of a
  // merge, or its result, is not a token.
  BpeModel(std::vector<std::pair<std::string, int32_t>> tokens, const std::vector<Merge>& merges,
           const BpeOptions& options, std::string_view name);

  void encode(std::string_view piece, std::vector<int32_t>& out) const override;
  void encode_without(const std::vector<bool>& excluded, std::string_view piece,
                      std::vector<int32_t>& out) const override;

 private:
  struct MergeTarget {
    uint64_t pair;  // left id in the upper half, right id in the lower
    int32_t rank;   // -1 for an empty slot
    int32_t id;
  };
  std::optional<int32_t> find(std::string_view piece) const;
  const MergeTarget* find_merge(int32_t left, int32_t right) const;
  void find_borders(const std::vector<Merge>& merges);
  void insert_merge(int32_t left, int32_t right, int32_t rank, int32_t id);
  void encode_part(std::string_view part, std::vector<int32_t>& out) const;
  // `excluded`, here and below, is null or true at the ids of tokens that must not be produced.
  void append_start_symbols(std::string_view piece, std::vector<int32_t>& out,
                            const std::vector<bool>* excluded = nullptr) const;
  // Merge the symbols ids[begin...] in place, with the same result. merge_scan() scans every pair for each merge and
  // does not allocate; merge_queue() keeps the pairs in a priority queue.
  void merge_scan(std::vector<int32_t>& ids, size_t begin) const;
  void merge_queue(std::vector<int32_t>& ids, size_t begin, const std::vector<bool>* excluded = nullptr) const;

  BpeOptions options_;
  std::deque<std::string> pieces_;  // owns the strings of the keys of ids_
  std::unordered_map<std::string_view, int32_t> ids_;
  std::array<int32_t, 128> ascii_ids_;    // ids of single characters; -1: none
  std::array<int32_t, 256> byte_ids_;     // ids of bytes (byte level) or of <0xXX> (byte fallback); -1: none
  std::vector<MergeTarget> merge_table_;  // open addressing, a power of two, at most half full
  bool cuts_ = false;                     // encode() splits a piece at borders_ and encodes the parts one by one
  MergeBorders borders_;
  mutable WordCache cache_;  // shared by all threads
};

}  // namespace ingot::text
