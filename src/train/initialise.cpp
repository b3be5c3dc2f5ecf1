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

}  // namespace

size_t weight_bytes(const spec::ModelSpec& model, DType type) {
  size_t bytes = 0;
  for (const spec::ParamSpec& p : spec::parameters(model)) {
    bytes += Arena::footprint(type_of(p, type), Shape(std::span<const int64_t>(p.shape)));
  }
  return bytes;
}

WeightSet random_weights(Device& device, const spec::ModelSpec& model, DType type, uint64_t seed) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  const auto arena = std::make_shared<Arena>(device, weight_bytes(model, type), "weights");
  WeightSet weights;
  for (size_t index = 0; index < table.size(); ++index) {
    const spec::ParamSpec& p = table[index];
    const Tensor tensor = arena->allocate(type_of(p, type), Shape(std::span<const int64_t>(p.shape)));
    const std::vector<float> values = values_of(p, seed, index);
    if (tensor.dtype == DType::f32) {
      device.copy_from_host(tensor.data, values.data(), tensor.bytes());
    } else {
      std::vector<uint16_t> rounded(values.size());
      for (size_t i = 0; i < values.size(); ++i) rounded[i] = float_to_bf16(values[i]);
      device.copy_from_host(tensor.data, rounded.data(), tensor.bytes());
    }
    Parameter parameter;
    if (p.shape.size() == 2) {
      parameter.matrix = weight_of(tensor);
    } else {
      parameter.vector = tensor;
    }
    weights.parameters.push_back(parameter);
  }
  weights.owners.push_back(arena);
  return weights;
}

}  // namespace ingot::train
