// How often each token occurs in a text, for penalties. Updated per token, so that a new token does not cost a pass
// over the earlier ones.
#pragma once

#include <cstdint>
#include <map>
#include <span>

namespace ingot::infer {

class TokenCounts {
 public:
  struct Count {
    int64_t prompt = 0;
    int64_t output = 0;
  };

  TokenCounts() = default;
  // Counts a text whose first `prompt` ids are the prompt.
  TokenCounts(std::span<const int32_t> ids, int64_t prompt);

  // Counts one more output token.
  void add(int32_t id) { ++by_id_[id].output; }
  // Reverts an `add`.
  void remove(int32_t id);

  // The tokens that occur, sorted by id.
  const std::map<int32_t, Count>& by_id() const { return by_id_; }

 private:
  std::map<int32_t, Count> by_id_;
};

}  // namespace ingot::infer
