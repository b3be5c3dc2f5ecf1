#include "train/initialise.h"

#include "base/half.h"
#include "base/philox.h"
#include "tensor/arena.h"

namespace ingot::train {

namespace {

DType type_of(const spec::ParamSpec& p, DType type) { return p.shape.size() == 2 ? type : DType::f32; }

std::vector<float> values_of(const spec::ParamSpec& p, uint64_t seed, size_t index) {
  std::vector<float> values(static_cast<size_t>(p.elements()), p.init == spec::Init::ones ? 1.0F : 0.0F);
  if (p.init == spec::Init::normal) {
    RandomStream random(seed, index);
    for (float& value : values) value = static_cast<float>(p.init_std * random.normal());
  }
  return values;
}

// The held elements of a parameter.
std::vector<float> held_values(const spec::HeldParameter& held, const spec::ParamSpec& whole,
                               std::vector<float> values) {
  if (held.held.elements() == whole.elements()) return values;
  const int64_t width = whole.shape.size() > 1 ? whole.shape[1] : 1;
  std::vector<float> part;
  part.reserve(static_cast<size_t>(held.held.elements()));
  spec::for_runs(held.slice, width, [&](int64_t first, int64_t count, int64_t) {
    part.insert(part.end(), values.begin() + first, values.begin() + first + count);
  });
  return part;
}

}  // namespace

size_t weight_bytes(std::span<const spec::HeldParameter> held, DType type) {
  size_t bytes = 0;
  for (const spec::HeldParameter& p : held) bytes += Arena::footprint(type_of(p.held, type), Shape(p.held.shape));
  return bytes;
}

WeightSet random_weights(Device& device, const spec::ModelSpec& model, DType type, uint64_t seed) {
  return random_weights(device, model, type, seed, spec::held_parameters(model, spec::ModelShard{}));
}

WeightSet random_weights(Device& device, const spec::ModelSpec& model, DType type, uint64_t seed,
                         std::span<const spec::HeldParameter> held) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  const auto arena = std::make_shared<Arena>(device, weight_bytes(held, type), "weights");
  WeightSet weights;
  weights.parameters.resize(table.size());
  for (const spec::HeldParameter& each : held) {
    const spec::ParamSpec& p = each.held;
    const Tensor tensor = arena->allocate(type_of(p, type), Shape(p.shape));
    const std::vector<float> values =
        held_values(each, table[each.whole], values_of(table[each.whole], seed, each.whole));
    if (tensor.dtype == DType::f32) {
      device.copy_from_host(tensor.data, values.data(), tensor.bytes());
    } else {
      std::vector<uint16_t> rounded(values.size());
      for (size_t i = 0; i < values.size(); ++i) rounded[i] = float_to_bf16(values[i]);
      device.copy_from_host(tensor.data, rounded.data(), tensor.bytes());
    }
    Parameter& parameter = weights.parameters[each.whole];
    if (p.shape.size() == 2) {
      parameter.matrix = weight_of(tensor);
    } else {
      parameter.vector = tensor;
    }
  }
  weights.owners.push_back(arena);
  return weights;
}

}  // namespace ingot::train
