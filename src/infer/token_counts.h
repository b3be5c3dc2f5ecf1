// How often each token came in a text: what penalties are made of. It grows with the text, so that a token more costs
// no walk over those before it.
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
  // Of a text whose first `prompt` ids are the prompt.
  TokenCounts(std::span<const int32_t> ids, int64_t prompt);

  // One more of the output.
  void add(int32_t id) { ++by_id_[id].output; }
  // Takes an `add` back.
  void remove(int32_t id);

  // Those that came, in the order of ids.
  const std::map<int32_t, Count>& by_id() const { return by_id_; }

 private:
  std::map<int32_t, Count> by_id_;
};

}  // namespace ingot::infer
