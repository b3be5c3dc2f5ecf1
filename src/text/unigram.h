// Unigram model of a tokenizer.json: the segmentation of a pre-token with the largest sum of scores. Rules: the model
// Unigram of github.com/huggingface/tokenizers, which also adds scores in double.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/byte_trie.h"
#include "text/model.h"
#include "text/word_cache.h"

namespace ingot::text {

class UnigramModel : public TokenModel {
 public:
  // `pieces` are (piece, score) by id. A character that is not a piece scores 10 below the worst piece. Adjacent
  // unknown characters become their bytes as <0xXX> if `byte_fallback` is set and all of those are pieces, otherwise a
  // single `unk_id`; without unk_id they are dropped.
  UnigramModel(const std::vector<std::pair<std::string, double>>& pieces, std::optional<int32_t> unk_id,
               bool byte_fallback);

  void encode(std::string_view piece, std::vector<int32_t>& out) const override;
  void encode_without(const std::vector<bool>& excluded, std::string_view piece,
                      std::vector<int32_t>& out) const override;

 private:
  // `excluded` may be null.
  void cut(std::string_view piece, const std::vector<bool>* excluded, std::vector<int32_t>& out) const;
  void append_unknown(std::string_view text, std::vector<int32_t>& out) const;

  ByteTrie trie_;
  std::vector<double> scores_;  // by id
  double unk_score_ = 0;
  std::optional<int32_t> unk_id_;
  bool byte_fallback_;
  std::array<int32_t, 256> byte_ids_;  // ids of <0xXX>; -1: none
  mutable WordCache cache_;            // shared by all threads
};

}  // namespace ingot::text
