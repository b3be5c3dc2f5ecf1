// The loss of a model over packed sequences, without training.
#pragma once

#include <span>

#include "app/session.h"
#include "data/packing.h"

namespace ingot::app {

class Evaluation {
 public:
  // Takes its memory at once: `micro` sequences of `sequence_length` tokens are computed together.
  Evaluation(Session& session, int64_t sequence_length, int64_t micro);

  struct Loss {
    double sum = 0;  // over counted tokens, in double and in their order
    int64_t counted = 0;
  };
  // At most `micro` sequences.
  Loss run(std::span<const data::PackedSequence> sequences);

 private:
  Session& session_;
  Arena batch_;
  Arena scratch_;
};

}  // namespace ingot::app
