#include "base/error.h"
#include "models/llama/model.h"
#include "models/model.h"

namespace ingot::models {

std::unique_ptr<Model> make_model(const spec::ModelSpec& spec, const WeightSet& weights, Device& device) {
  spec::check(spec);
  if (spec.family == "llama") return std::make_unique<Llama>(spec, weights, device);
  throw_error(ErrorKind::unsupported, "model family '{}' cannot be run", spec.family);
}

PassBytes pass_bytes(const spec::ModelSpec& spec, const PassShape& shape) {
  spec::check(spec);
  if (spec.family == "llama") return llama_pass_bytes(spec, shape);
  throw_error(ErrorKind::unsupported, "model family '{}' cannot be run", spec.family);
}

}  // namespace ingot::models
