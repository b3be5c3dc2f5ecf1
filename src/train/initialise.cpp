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

std::vector<ParameterForm> random_forms(std::span<const spec::HeldParameter> held, DType type) {
  std::vector<ParameterForm> forms;
  for (const spec::HeldParameter& p : held)
    forms.push_back(
        {p.whole, type_of(p.held, type) == DType::f32 ? StorageType::f32 : StorageType::bf16, Shape(p.held.shape)});
  return forms;
}

WeightSet random_weights(Device& device, const spec::ModelSpec& model, DType type, uint64_t seed,
                         std::span<const spec::HeldParameter> held) {
  const auto arena = std::make_shared<Arena>(device, weight_bytes(held, type), "weights");
  WeightSet weights;
  weights.parameters.resize(spec::parameters(model).size());
  std::vector<checkpoint::KeptBytes> all(weights.parameters.size());
  for (const ParameterForm& form : random_forms(held, type)) {
    checkpoint::KeptBytes& kept = all[form.number];
    kept = {{0, static_cast<int64_t>(form.bytes())}, static_cast<std::byte*>(arena->allocate_bytes(form.bytes()))};
    weights.parameters[form.number] = form.at(kept.data, device);
  }
  write_random_weights(device, model, type, seed, held, all);
  weights.owners.push_back(arena);
  return weights;
}

void write_random_weights(Device& device, const spec::ModelSpec& model, DType type, uint64_t seed,
                          std::span<const spec::HeldParameter> held, std::span<const checkpoint::KeptBytes> kept) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  for (const spec::HeldParameter& each : held) {
    const auto& [bytes, data] = kept[each.whole];
    if (bytes.count() == 0) continue;
    const std::vector<float> values =
        held_values(each, table[each.whole], values_of(table[each.whole], seed, each.whole));
    if (type_of(each.held, type) == DType::f32) {
      const auto all = std::as_bytes(std::span(values));
      device.copy_from_host(data, all.data() + bytes.begin, static_cast<size_t>(bytes.count()));
      continue;
    }
    std::vector<uint16_t> rounded(values.size());
    for (size_t i = 0; i < values.size(); ++i) rounded[i] = float_to_bf16(values[i]);
    const auto all = std::as_bytes(std::span(rounded));
    device.copy_from_host(data, all.data() + bytes.begin, static_cast<size_t>(bytes.count()));
  }
}

}  // namespace ingot::train
