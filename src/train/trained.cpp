#include "train/trained.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "base/philox.h"
#include "ops/elementwise.h"

namespace ingot::train {

namespace {

Shape shape_of(const spec::ParamSpec& p) { return Shape(std::span<const int64_t>(p.shape)); }

size_t state_footprint(const Shape& shape, DType type) { return Arena::footprint(type, shape); }

// The embedding that is the output head too.
bool is_tied(const spec::ModelSpec& model, const spec::ParamSpec& p) {
  return model.tied_head && p.role == spec::Role::embedding;
}

// The tensor that the model computes with: matrices in the activations' type, vectors in f32.
DType weight_type(const Shape& shape, DType activation) { return shape.rank() == 2 ? activation : DType::f32; }

// An f32 weight is its own master whatever the masters' type: a coarser one beside it would save nothing.
bool shares_memory(DType weight, OptimizerTypes types) { return weight == types.master || weight == DType::f32; }

// Of contributions that nothing is known of yet. A step with a larger one is begun again with the range it takes.
constexpr int32_t first_range = 20;

struct Planned {
  Shape shape;
  DType weight;
  bool tied = false;
};

std::vector<Planned> planned_tensors(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora,
                                     DType activation) {
  std::vector<Planned> planned;
  if (lora) {
    for (const spec::LoraParam& p : spec::lora_parameters(model, *lora)) {
      planned.push_back({Shape{p.rank, p.in}, activation});
      planned.push_back({Shape{p.out, p.rank}, activation});
    }
  } else {
    for (const spec::ParamSpec& p : spec::parameters(model)) {
      planned.push_back({shape_of(p), weight_type(shape_of(p), activation), is_tied(model, p)});
    }
  }
  return planned;
}

}  // namespace

TrainedBytes trained_bytes(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora, DType activation,
                           OptimizerTypes types) {
  TrainedBytes bytes;
  size_t largest = 0;
  int64_t count = 0;
  for (const Planned& p : planned_tensors(model, lora, activation)) {
    if (!shares_memory(p.weight, types)) bytes.master += state_footprint(p.shape, types.master);
    bytes.moments += 2 * state_footprint(p.shape, types.state);
    bytes.state += state_footprint(p.shape, shares_memory(p.weight, types) ? p.weight : types.master) +
                   2 * state_footprint(p.shape, types.state);
    if (types.fixed_sums) {
      bytes.gradients += state_footprint(p.shape, DType::i64);
      largest = std::max(largest, state_footprint(p.shape, DType::f32));
      ++count;
    } else {
      bytes.gradients += (p.tied ? 2 : 1) * state_footprint(p.shape, DType::f32);
    }
    if (lora) bytes.adapter += state_footprint(p.shape, p.weight);
  }
  if (types.fixed_sums) {
    bytes.gradients += largest + state_footprint(Shape{count}, DType::i32) + state_footprint(Shape{count}, DType::f32);
  }
  return bytes;
}

Trained::Trained(Device& device, const spec::ModelSpec& model, const WeightSet& weights, DType activation,
                 OptimizerTypes types) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  place_of_parameter_.resize(table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const Parameter& parameter = weights.parameters[i];
    TrainedTensor t;
    t.name = table[i].name;
    t.shape = shape_of(table[i]);
    t.decay = table[i].decay;
    t.weight = t.shape.rank() == 2 ? parameter.matrix.tensor() : parameter.vector;
    if (t.weight.dtype != weight_type(t.shape, activation)) {
      throw_error(ErrorKind::internal, "{} is {} and cannot be trained in {}", t.name, name(t.weight.dtype),
                  name(activation));
    }
    place_of_parameter_[i] = static_cast<int>(tensors_.size());
    tensors_.push_back(std::move(t));
  }
  const TrainedBytes bytes = trained_bytes(model, std::nullopt, activation, types);
  optimizer_arena_ = Arena(device, bytes.master + bytes.moments, "optimizer");
  gradient_arena_ = Arena(device, bytes.gradients, "gradients");
  allocate_state(device, types);
  for (size_t i = 0; i < table.size() && !types.fixed_sums; ++i) {
    if (is_tied(model, table[i])) tensors_[i].tied_gradient = gradient_arena_.take(DType::f32, tensors_[i].shape);
  }
}

Trained::Trained(Device& device, const spec::ModelSpec& model, const spec::LoraSpec& lora, DType activation,
                 OptimizerTypes types, uint64_t seed) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  const std::vector<spec::LoraParam> adapted = spec::lora_parameters(model, lora);
  const TrainedBytes bytes = trained_bytes(model, lora, activation, types);
  adapter_arena_ = Arena(device, bytes.adapter, "adapter");
  optimizer_arena_ = Arena(device, bytes.master + bytes.moments, "optimizer");
  gradient_arena_ = Arena(device, bytes.gradients, "gradients");

  place_of_parameter_.assign(table.size(), -1);
  lowest_layer_ = model.layers;
  adapter_.emplace();
  adapter_->factor = static_cast<float>(lora.factor());
  adapter_->dropout = static_cast<float>(lora.dropout);
  adapter_->layers.resize(table.size());
  for (const spec::LoraParam& p : adapted) {
    if (table[p.base].layer >= 0) lowest_layer_ = std::min(lowest_layer_, table[p.base].layer);
    nn::LoraWeights& layer = adapter_->layers[p.base];
    layer.a = adapter_arena_.take(activation, Shape{p.rank, p.in});
    layer.b = adapter_arena_.take(activation, Shape{p.out, p.rank});
    layer.a_trainable = static_cast<int>(tensors_.size());
    layer.b_trainable = layer.a_trainable + 1;
    for (const auto& [part, weight] : {std::pair{"lora_A", layer.a}, {"lora_B", layer.b}}) {
      TrainedTensor t;
      t.name = fmt::format("{}.{}.weight", p.module, part);
      t.shape = weight.shape;
      t.decay = true;
      t.weight = weight;
      tensors_.push_back(std::move(t));
    }
  }
  allocate_state(device, types);

  for (const spec::LoraParam& p : adapted) {
    const size_t place = static_cast<size_t>(adapter_->layers[p.base].a_trainable);
    const Tensor& master = tensors_[place].master;
    const double bound = 1.0 / std::sqrt(static_cast<double>(p.in));
    std::vector<float> values(static_cast<size_t>(p.rank * p.in));
    RandomStream random(seed, place);
    for (float& value : values) value = static_cast<float>((2.0 * random.uniform() - 1.0) * bound);
    if (master.dtype == DType::f32) {
      device.copy_from_host(master.data, values.data(), values.size() * sizeof(float));
    } else {
      std::vector<uint16_t> rounded(values.size());
      std::transform(values.begin(), values.end(), rounded.begin(), [](float v) { return float_to_bf16(v); });
      device.copy_from_host(master.data, rounded.data(), rounded.size() * sizeof(uint16_t));
    }
  }
}

void Trained::allocate_state(Device& device, OptimizerTypes types) {
  for (TrainedTensor& t : tensors_) {
    t.master = shares_memory(t.weight.dtype, types) ? t.weight : optimizer_arena_.take(types.master, t.shape);
    t.moment1 = optimizer_arena_.take(types.state, t.shape);
    t.moment2 = optimizer_arena_.take(types.state, t.shape);
    if (types.fixed_sums) {
      t.sum = gradient_arena_.take(DType::i64, t.shape);
    } else {
      t.gradient = gradient_arena_.take(DType::f32, t.shape);
    }
  }
  if (types.fixed_sums) take_fixed_sums(device);
}

void Trained::take_fixed_sums(Device& device) {
  int64_t most = 0;
  for (const TrainedTensor& t : tensors_) most = std::max(most, t.shape.elements());
  const Tensor shared = gradient_arena_.take(DType::f32, Shape{most});
  for (TrainedTensor& t : tensors_) t.gradient = shared.slice(0, t.shape.elements()).reshape(t.shape);
  const Shape all{static_cast<int64_t>(tensors_.size())};
  ranges_ = gradient_arena_.take(DType::i32, all);
  largest_ = gradient_arena_.take(DType::f32, all);
  const std::vector<int32_t> first(tensors_.size(), first_range);
  device.copy_from_host(ranges_.data, first.data(), ranges_.bytes());
}

int64_t Trained::num_parameters() const {
  int64_t count = 0;
  for (const TrainedTensor& t : tensors_) count += t.shape.elements();
  return count;
}

void Trained::take_masters(ops::Context& context) {
  for (const TrainedTensor& t : tensors_) {
    if (t.weight.data != t.master.data) ops::scale(context, t.master, t.weight, 1);
  }
}

void Trained::refresh_weights(ops::Context& context) {
  for (const TrainedTensor& t : tensors_) {
    if (t.weight.data != t.master.data) ops::scale(context, t.weight, t.master, 1);
  }
}

}  // namespace ingot::train
