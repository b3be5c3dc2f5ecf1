#include "models/decoder/decoder.h"
#include "models/model.h"

namespace ingot::models {

std::unique_ptr<Model> make_model(const spec::ModelSpec& spec, const WeightSet& weights, Device& device,
                                  const spec::ModelShard& shard) {
  spec::check(spec);
  spec::check(spec, shard);
  return std::make_unique<Decoder>(spec, shard, weights, device);
}

PassBytes pass_bytes(const spec::ModelSpec& spec, const PassShape& shape) {
  spec::check(spec);
  return decoder_pass_bytes(spec, shape);
}

}  // namespace ingot::models
