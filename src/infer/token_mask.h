// Which tokens may come next in one output: what the engine asks of a grammar. One thread uses it.
#pragma once

#include <cstdint>
#include <span>

namespace ingot::infer {

class TokenMask {
 public:
  virtual ~TokenMask() = default;

  // Assigns all (V + 31) / 32 words: bit t % 32 of word t / 32 says that token t may come next. An id that ends the
  // output is a token like others.
  virtual void fill(std::span<uint32_t> bits) = 0;
  // The token was chosen; its bit was set.
  virtual void accept(int32_t id) = 0;
  // Takes the last accepted tokens back, at most as many as were accepted.
  virtual void rollback(int64_t tokens) = 0;
  // Nothing but the end may come: the engine ends the output.
  virtual bool finished() const = 0;
};

}  // namespace ingot::infer
