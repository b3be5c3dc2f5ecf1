// Provides weights that a device has only while they are used: those that ranks hold in parts (ZeRO stage 3), or that
// are in host memory.
#pragma once

#include <cstdint>
#include <vector>

namespace ingot::nn {

// The weights come in units: 0 is what is used before the blocks, 1 + i block i, and one more what is used after them.
// One thread at a time.
class WeightGatherer {
 public:
  virtual ~WeightGatherer() = default;

  // Before a pass: the units that it needs, in order.
  virtual void begin_pass(std::vector<int> units) = 0;
  // Before the computations with a unit, which must be the next one of the pass: waits until its weights are there.
  // They stay until the next call; a tied embedding, which is used at both ends, until the pass has ended. Meanwhile
  // the next unit's weights are gathered. Embedding's backward needs none.
  virtual void need(int unit) = 0;
};

// The units of a pass over a model of so many blocks, forward, and backward down to block `lowest`; `lowest` =
// `blocks`: forward only.
std::vector<int> weight_units_of_pass(int64_t blocks, int64_t lowest);

}  // namespace ingot::nn
