#include "train/optimizer.h"

#include <algorithm>

#include "ops/adamw.h"
#include "ops/blockwise.h"
#include "ops/momentum.h"
#include "ops/muon.h"
#include "ops/muon_bytes.h"
#include "tensor/arena.h"

namespace ingot::train {

namespace {

float weight_decay_of(const ParameterUpdate& parameter, const OptimizerSettings& settings) {
  return parameter.decay ? static_cast<float>(settings.weight_decay) : 0;
}

void update_adamw(ops::Context& context, const ParameterUpdate& parameter, const UpdateAttributes& attributes) {
  const OptimizerSettings& settings = attributes.settings;
  ops::AdamwAttributes adamw;
  adamw.lr = static_cast<float>(attributes.lr);
  adamw.beta1 = static_cast<float>(settings.beta1);
  adamw.beta2 = static_cast<float>(settings.beta2);
  adamw.epsilon = static_cast<float>(settings.epsilon);
  adamw.weight_decay = weight_decay_of(parameter, settings);
  adamw.step = attributes.updates;
  adamw.decision = attributes.decision;
  ops::adamw(context, {parameter.master, parameter.state[0], parameter.state[1], parameter.weight}, parameter.gradient,
             adamw);
}

void update_muon(ops::Context& context, const ParameterUpdate& parameter, const UpdateAttributes& attributes) {
  const OptimizerSettings& settings = attributes.settings;
  ops::MuonAttributes muon;
  muon.lr = static_cast<float>(attributes.lr);
  muon.momentum = static_cast<float>(settings.momentum);
  muon.weight_decay = weight_decay_of(parameter, settings);
  muon.iterate = parameter.activation;
  muon.decision = attributes.decision;
  const Shape& shape = parameter.shape;
  ops::MuonState state{parameter.master.reshape(shape), parameter.state[0].reshape(shape), {}};
  if (parameter.weight) state.weight = parameter.weight.reshape(shape);
  ops::muon(context, state, parameter.gradient.reshape(shape), muon);
}

size_t muon_scratch(const Shape& shape, DType activation) {
  return ops::muon_bytes(shape[0], shape[1], size_of(activation));
}

void update_sgd(ops::Context& context, const ParameterUpdate& parameter, const UpdateAttributes& attributes) {
  ops::SgdAttributes sgd;
  sgd.lr = static_cast<float>(attributes.lr);
  sgd.momentum = static_cast<float>(attributes.settings.momentum);
  sgd.weight_decay = weight_decay_of(parameter, attributes.settings);
  sgd.decision = attributes.decision;
  ops::sgd(context, {parameter.master, parameter.state[0], parameter.weight}, parameter.gradient, sgd);
}

void update_lion(ops::Context& context, const ParameterUpdate& parameter, const UpdateAttributes& attributes) {
  const OptimizerSettings& settings = attributes.settings;
  ops::LionAttributes lion;
  lion.lr = static_cast<float>(attributes.lr);
  lion.beta1 = static_cast<float>(settings.beta1);
  lion.beta2 = static_cast<float>(settings.beta2);
  lion.weight_decay = weight_decay_of(parameter, settings);
  lion.decision = attributes.decision;
  ops::lion(context, {parameter.master, parameter.state[0], parameter.weight}, parameter.gradient, lion);
}

constexpr StateSpec two_moments[] = {{"moment1"}, {"moment2", false}};
constexpr StateSpec one_moment[] = {{"moment1"}};
constexpr StateSpec momentum_buffer[] = {{"momentum"}};

constexpr Optimizer adamw = {.name = "adamw", .state = two_moments, .update = update_adamw};
constexpr Optimizer muon = {
    .name = "muon", .state = momentum_buffer, .whole_matrices = true, .update = update_muon, .scratch = muon_scratch};
constexpr Optimizer sgd = {.name = "sgd", .state = momentum_buffer, .update = update_sgd};
constexpr Optimizer lion = {.name = "lion", .state = one_moment, .update = update_lion};

// Elements of an 8-bit state that are decoded at a time: few enough for a cache, many enough for a GPU.
constexpr int64_t piece_elements = int64_t{1} << 20;
static_assert(piece_elements % ops::blockwise_elements == 0);

DType stored_type(const Shape& shape, DType type) { return type == DType::u8 && shape.rank() != 2 ? DType::f32 : type; }

int64_t part_elements(const Optimizer& optimizer, int64_t shard_elements) {
  return optimizer.whole_matrices ? shard_elements : std::min(shard_elements, piece_elements);
}

Tensor flat(const Tensor& tensor) { return tensor.reshape(Shape{tensor.elements()}); }

}  // namespace

const Optimizer& optimizer_for(OptimizerName name, const Shape& shape, int64_t layer) {
  switch (name) {
    case OptimizerName::adamw: break;
    case OptimizerName::muon: return layer >= 0 && shape.rank() == 2 ? muon : adamw;
    case OptimizerName::sgd: return sgd;
    case OptimizerName::lion: return lion;
  }
  return adamw;
}

std::vector<StateTensor> state_layout(const Optimizer& optimizer, const Shape& shape, int64_t shard_elements,
                                      DType type) {
  const DType stored = stored_type(shape, type);
  const Shape elements = shard_elements == shape.elements() ? shape : Shape{shard_elements};
  std::vector<StateTensor> layout;
  for (const StateSpec& state : optimizer.state) {
    layout.push_back({state.name, Tensor{nullptr, stored, elements}});
    if (stored != DType::u8) continue;
    layout.push_back({std::string(state.name) + "_scales",
                      Tensor{nullptr, DType::f32, {ops::blockwise_blocks(shard_elements)}}, ops::blockwise_elements});
  }
  return layout;
}

size_t state_bytes(const Optimizer& optimizer, const Shape& shape, int64_t shard_elements, DType type) {
  size_t bytes = 0;
  for (const StateTensor& state : state_layout(optimizer, shape, shard_elements, type)) {
    bytes += Arena::footprint(state.tensor.dtype, state.tensor.shape);
  }
  return bytes;
}

size_t update_bytes(const Optimizer& optimizer, const Shape& shape, int64_t shard_elements, DType type,
                    DType activation) {
  if (shard_elements == 0) return 0;
  size_t bytes = optimizer.scratch != nullptr ? optimizer.scratch(shape, activation) : 0;
  if (stored_type(shape, type) == DType::u8) {
    bytes += optimizer.state.size() * Arena::footprint(DType::f32, Shape{part_elements(optimizer, shard_elements)});
  }
  return bytes;
}

void run_update(ops::Context& context, const Optimizer& optimizer, std::span<const StateTensor> state,
                const ParameterUpdate& parameter, const UpdateAttributes& attributes) {
  ParameterUpdate part = parameter;
  std::vector<Tensor> decoded;
  if (state.size() == optimizer.state.size()) {
    for (const StateTensor& each : state) decoded.push_back(flat(each.tensor));
    part.state = decoded;
    return optimizer.update(context, part, attributes);
  }
  const int64_t shard_elements = parameter.master.elements();
  for (int64_t begin = 0; begin < shard_elements; begin += part_elements(optimizer, shard_elements)) {
    const Arena::Scope scope(context.scratch);
    const int64_t end = std::min(shard_elements, begin + part_elements(optimizer, shard_elements));
    const auto codes = [&](size_t i) { return flat(state[2 * i].tensor).slice(begin, end); };
    const auto scales = [&](size_t i) {
      return state[2 * i + 1].tensor.slice(begin / ops::blockwise_elements, ops::blockwise_blocks(end));
    };
    decoded.clear();
    for (size_t i = 0; i < optimizer.state.size(); ++i) {
      decoded.push_back(context.scratch.take(DType::f32, Shape{end - begin}));
      ops::dequantize_blockwise(context, decoded[i], codes(i), scales(i), optimizer.state[i].is_signed);
    }
    part.master = parameter.master.slice(begin, end);
    if (parameter.weight) part.weight = parameter.weight.slice(begin, end);
    part.gradient = parameter.gradient.slice(begin, end);
    part.state = decoded;
    optimizer.update(context, part, attributes);
    for (size_t i = 0; i < optimizer.state.size(); ++i) {
      ops::quantize_blockwise(context, codes(i), scales(i), decoded[i],
                              {optimizer.state[i].is_signed, attributes.decision});
    }
  }
}

}  // namespace ingot::train
