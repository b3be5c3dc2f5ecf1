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
  ops::AdamwState state{parameter.master, parameter.state[0], parameter.state[1], parameter.weight};
  if (parameter.is_coded()) {
    state = {parameter.master, parameter.state[0], parameter.state[2],
             parameter.weight, parameter.state[1], parameter.state[3]};
  }
  ops::adamw(context, state, parameter.gradient, adamw);
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
  if (parameter.is_coded()) state.momentum_scales = parameter.state[1];
  ops::muon(context, state, parameter.gradient.reshape(shape), muon);
}

size_t muon_scratch(const Shape& shape, DType activation) {
  return ops::muon_bytes(shape[0], shape[1], size_of(activation));
}

ops::MomentumState momentum_state(const ParameterUpdate& parameter) {
  ops::MomentumState state{parameter.master, parameter.state[0], parameter.weight};
  if (parameter.is_coded()) state.momentum_scales = parameter.state[1];
  return state;
}

void update_sgd(ops::Context& context, const ParameterUpdate& parameter, const UpdateAttributes& attributes) {
  ops::SgdAttributes sgd;
  sgd.lr = static_cast<float>(attributes.lr);
  sgd.momentum = static_cast<float>(attributes.settings.momentum);
  sgd.weight_decay = weight_decay_of(parameter, attributes.settings);
  sgd.decision = attributes.decision;
  ops::sgd(context, momentum_state(parameter), parameter.gradient, sgd);
}

void update_lion(ops::Context& context, const ParameterUpdate& parameter, const UpdateAttributes& attributes) {
  const OptimizerSettings& settings = attributes.settings;
  ops::LionAttributes lion;
  lion.lr = static_cast<float>(attributes.lr);
  lion.beta1 = static_cast<float>(settings.beta1);
  lion.beta2 = static_cast<float>(settings.beta2);
  lion.weight_decay = weight_decay_of(parameter, settings);
  lion.decision = attributes.decision;
  ops::lion(context, momentum_state(parameter), parameter.gradient, lion);
}

constexpr StateSpec two_moments[] = {{"moment1"}, {"moment2"}};
constexpr StateSpec one_moment[] = {{"moment1"}};
constexpr StateSpec momentum_buffer[] = {{"momentum"}};

constexpr Optimizer adamw = {.name = "adamw", .state = two_moments, .update = update_adamw};
constexpr Optimizer muon = {
    .name = "muon", .state = momentum_buffer, .whole_matrices = true, .update = update_muon, .scratch = muon_scratch};
constexpr Optimizer sgd = {.name = "sgd", .state = momentum_buffer, .update = update_sgd};
constexpr Optimizer lion = {.name = "lion", .state = one_moment, .update = update_lion};

DType stored_type(const Shape& shape, DType type) { return type == DType::u8 && shape.rank() != 2 ? DType::f32 : type; }

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

size_t update_bytes(const Optimizer& optimizer, const Shape& shape, int64_t shard_elements, DType activation) {
  return shard_elements > 0 && optimizer.scratch != nullptr ? optimizer.scratch(shape, activation) : 0;
}

void run_update(ops::Context& context, const Optimizer& optimizer, std::span<const StateTensor> state,
                const ParameterUpdate& parameter, const UpdateAttributes& attributes) {
  ParameterUpdate with_state = parameter;
  std::vector<Tensor> tensors;
  for (const StateTensor& each : state) tensors.push_back(flat(each.tensor));
  with_state.state = tensors;
  optimizer.update(context, with_state, attributes);
}

}  // namespace ingot::train
