// Provides weights that a device has only while they are used: those that ranks hold in parts (ZeRO stage 3), or that
// are in host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/model_shard.h"

namespace ingot::nn {

// The weights come in units: 0 is what is used before the blocks, 1 + i block i, and one more what is used after them.
// One thread at a time.
class WeightGatherer {
 public:
  virtual ~WeightGatherer() = default;

  // Before a forward or backward pass: the units that it needs, in order.
  virtual void begin_pass(std::vector<int> units) = 0;
  // Before the computations with a unit, which must be the next one of the pass: waits until its weights are there.
  // They stay until the next call; a tied embedding, which is used at both ends, until the pass has ended. Meanwhile
  // the next unit's weights are gathered.
  virtual void need(int unit) = 0;
};

// The units that a forward pass of the shard needs, with its loss. The last stage of a pipeline has a tied embedding,
// unit 0, as its head.
std::vector<int> forward_weight_units(const spec::ModelSpec& model, const spec::ModelShard& shard);
// The units that backward needs after the loss, down to the shard's own block `lowest`. Embedding's backward needs
// none.
std::vector<int> backward_weight_units(const spec::ModelSpec& model, const spec::ModelShard& shard, int64_t lowest);

}  // namespace ingot::nn
