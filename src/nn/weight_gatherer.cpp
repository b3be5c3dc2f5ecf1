#include "nn/weight_gatherer.h"

namespace ingot::nn {

std::vector<int> forward_weight_units(const spec::ModelSpec& model, const spec::ModelShard& shard) {
  const spec::Range blocks = spec::blocks_of(model, shard);
  std::vector<int> units;
  if (shard.first()) units.push_back(0);
  for (int64_t layer = blocks.begin; layer < blocks.end; ++layer) units.push_back(static_cast<int>(1 + layer));
  if (!shard.last()) return units;
  if (model.tied_head && !shard.first()) units.push_back(0);
  units.push_back(static_cast<int>(1 + model.num_layers()));
  return units;
}

std::vector<int> backward_weight_units(const spec::ModelSpec& model, const spec::ModelShard& shard, int64_t lowest) {
  const spec::Range blocks = spec::blocks_of(model, shard);
  std::vector<int> units;
  for (int64_t layer = blocks.end; layer-- > blocks.begin + lowest;) units.push_back(static_cast<int>(1 + layer));
  return units;
}

}  // namespace ingot::nn
