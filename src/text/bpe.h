// Byte-pair encoding: merge the adjacent pair of lowest rank, leftmost first, until none is left.
// Rules: specs/tokenizers.md, section 1, "Model type BPE".
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
  bool byte_level = false;        // start from bytes; tokens and merges are given as bytes, not as stand-ins
  bool byte_fallback = false;     // an unknown character becomes its bytes as <0xXX> tokens, if all exist
  bool ignore_merges = false;     // a pre-token that is a token is emitted at once
  bool fuse_unk = false;          // neighbouring unknown characters give one unk
  std::optional<int32_t> unk_id;  // without it, unknown characters are dropped
};

class BpeModel : public TokenModel {
 public:
  using Merge = std::pair<std::string, std::string>;

  // `tokens` are (piece, id); `merges` in order of rank; `name` is for errors.
  // Errors: corrupt when a merge names or makes a piece that is not a token.
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
  // `excluded`, here and below, is null or has true at the ids of tokens that are not made.
  void append_start_symbols(std::string_view piece, std::vector<int32_t>& out,
                            const std::vector<bool>* excluded = nullptr) const;
  // Merge the symbols from ids[begin] on, in place. Both give the same: one looks at every pair for each merge, without
  // memory of its own, the other keeps the pairs in a queue.
  void merge_few(std::vector<int32_t>& ids, size_t begin) const;
  void merge_many(std::vector<int32_t>& ids, size_t begin, const std::vector<bool>* excluded = nullptr) const;

  BpeOptions options_;
  std::deque<std::string> pieces_;  // what the keys of ids_ point into
  std::unordered_map<std::string_view, int32_t> ids_;
  std::array<int32_t, 128> ascii_ids_;    // of single characters, -1 for none
  std::array<int32_t, 256> byte_ids_;     // byte level: the byte as a token; byte fallback: <0xXX>; -1 for none
  std::vector<MergeTarget> merge_table_;  // open addressing, a power of two, at most half full
  bool cuts_ = false;                     // a piece is cut at borders_ and its parts are encoded one by one
  MergeBorders borders_;
  mutable WordCache cache_;  // is shared by threads
};

}  // namespace ingot::text
