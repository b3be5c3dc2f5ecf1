// Guided decoding: which tokens are allowed next in one output. The engine's interface to a grammar. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace ingot::infer {

class TokenMask {
 public:
  virtual ~TokenMask() = default;

  // Assigns all (V + 31) / 32 words: bit t % 32 of word t / 32 is set if token t is allowed next. Ids that end the
  // output are tokens like others.
  virtual void fill(std::span<uint32_t> bits) = 0;
  // The token was sampled; its bit was set.
  virtual void accept(int32_t id) = 0;
  // Reverts the last `tokens` accepted tokens, at most as many as were accepted.
  virtual void rollback(int64_t tokens) = 0;
  // Whether nothing but the end is allowed: the engine ends the output.
  virtual bool finished() const = 0;
};

}  // namespace ingot::infer
