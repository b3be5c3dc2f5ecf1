#include "train/optimizer.h"

#include "ops/adamw.h"
#include "tensor/arena.h"

namespace ingot::train {

namespace {

void update_adamw(ops::Context& context, const ParameterUpdate& parameter, const UpdateAttributes& attributes) {
  const OptimizerSettings& settings = attributes.settings;
  ops::AdamwAttributes adamw;
  adamw.lr = static_cast<float>(attributes.lr);
  adamw.beta1 = static_cast<float>(settings.beta1);
  adamw.beta2 = static_cast<float>(settings.beta2);
  adamw.epsilon = static_cast<float>(settings.epsilon);
  adamw.weight_decay = parameter.decay ? static_cast<float>(settings.weight_decay) : 0;
  adamw.step = attributes.updates;
  adamw.decision = attributes.decision;
  ops::adamw(context, {parameter.master, parameter.state[0], parameter.state[1], parameter.weight}, parameter.gradient,
             adamw);
}

constexpr StateSpec adamw_state[] = {{"moment1"}, {"moment2"}};
constexpr Optimizer adamw = {.name = "adamw", .state = adamw_state, .update = update_adamw};

}  // namespace

const Optimizer& optimizer_for(OptimizerName name) {
  switch (name) {
    case OptimizerName::adamw: break;
  }
  return adamw;
}

std::vector<StateTensor> state_layout(const Optimizer& optimizer, const Shape& shape, DType type) {
  std::vector<StateTensor> layout;
  for (const StateSpec& state : optimizer.state) layout.push_back({state.name, Tensor{nullptr, type, shape}});
  return layout;
}

size_t state_bytes(const Optimizer& optimizer, const Shape& shape, DType type) {
  size_t bytes = 0;
  for (const StateTensor& state : state_layout(optimizer, shape, type)) {
    bytes += Arena::footprint(state.tensor.dtype, state.tensor.shape);
  }
  return bytes;
}

}  // namespace ingot::train
