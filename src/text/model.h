// The part of a tokenizer that turns one pre-token into ids.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ingot::text {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of one pre-token. Thread-safe.
  virtual void encode(std::string_view piece, std::vector<int32_t>& out) const = 0;
  // The same as if the tokens with `excluded[id]` were not in the vocabulary. Slower: for pieces for which `encode`
  // produced such a token.
  virtual void encode_without(const std::vector<bool>& excluded, std::string_view piece,
                              std::vector<int32_t>& out) const = 0;
};

}  // namespace ingot::text
