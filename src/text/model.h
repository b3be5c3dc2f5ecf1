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
  // The same as if the tokens that `excluded` has true at their id were not there.
  // Slower: for pieces of which `encode` gives one of them.
  virtual void encode_without(const std::vector<bool>& excluded, std::string_view piece,
                              std::vector<int32_t>& out) const = 0;
};

}  // namespace ingot::text
