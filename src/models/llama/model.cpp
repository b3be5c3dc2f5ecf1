#include "models/llama/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "nn/lm_loss.h"

namespace ingot::models {

namespace {

// Finds parameters by name and hands out layers made of them.
class Binder {
 public:
  Binder(const spec::ModelSpec& spec, const WeightSet& weights) : weights_(weights) {
    const std::vector<spec::ParamSpec> table = spec::parameters(spec);
    if (weights.parameters.size() != table.size()) {
      throw_error(ErrorKind::internal, "{} weights for a model of {}", weights.parameters.size(), table.size());
    }
    for (size_t i = 0; i < table.size(); ++i) index_[table[i].name] = i;
  }

  size_t index(const std::string& name) const {
    const auto found = index_.find(name);
    if (found == index_.end()) throw_error(ErrorKind::internal, "llama has no parameter {}", name);
    return found->second;
  }

  bool has(const std::string& name) const { return index_.contains(name); }
  const Parameter& at(const std::string& name) const { return weights_.parameters[index(name)]; }

  nn::Linear linear(const std::string& module) const {
    nn::Linear layer;
    layer.parameter = index(module + ".weight");
    layer.weight = at(module + ".weight").matrix;
    if (has(module + ".bias")) layer.bias = at(module + ".bias").vector;
    return layer;
  }

  nn::Norm norm(const std::string& module, double epsilon) const {
    return {at(module + ".weight").vector, static_cast<float>(epsilon), -1};
  }

 private:
  const WeightSet& weights_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace

Llama::Llama(const spec::ModelSpec& spec, const WeightSet& weights, Device& device) : spec_(spec) {
  const std::vector<float> frequencies = spec::rope_frequencies(spec);
  frequencies_ = Buffer(device, frequencies.size() * sizeof(float));
  device.copy_from_host(frequencies_.data(), frequencies.data(), frequencies_.bytes());
  const Tensor angles = frequencies_.view(DType::f32, Shape{static_cast<int64_t>(frequencies.size())});

  const Binder binder(spec, weights);
  embedding_.table = binder.at("model.embed_tokens.weight").matrix;
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    nn::Block block;
    block.attention_norm = binder.norm(prefix + "input_layernorm", spec.norm_epsilon);
    block.attention = {binder.linear(prefix + "self_attn.q_proj"),
                       binder.linear(prefix + "self_attn.k_proj"),
                       binder.linear(prefix + "self_attn.v_proj"),
                       binder.linear(prefix + "self_attn.o_proj"),
                       spec.heads,
                       spec.kv_heads,
                       spec.head_dim,
                       angles,
                       layer};
    block.mlp_norm = binder.norm(prefix + "post_attention_layernorm", spec.norm_epsilon);
    block.mlp = {binder.linear(prefix + "mlp.gate_proj"), binder.linear(prefix + "mlp.up_proj"),
                 binder.linear(prefix + "mlp.down_proj")};
    blocks_.push_back(block);
  }
  final_norm_ = binder.norm("model.norm", spec.norm_epsilon);
  if (spec.tied_head) {
    head_.parameter = binder.index("model.embed_tokens.weight");
    head_.weight = embedding_.table;
    embedding_.tied = true;
  } else {
    head_ = binder.linear("lm_head");
  }
}

void Llama::set_trained(const std::vector<int>& trainable_of_parameter, int64_t lowest_layer) {
  const std::vector<spec::ParamSpec> table = spec::parameters(spec_);
  std::unordered_map<std::string_view, int> place;
  for (size_t i = 0; i < table.size(); ++i) place[table[i].name] = trainable_of_parameter[i];
  const auto set_linear = [&](nn::Linear& layer) {
    const spec::ParamSpec& p = table[layer.parameter];
    layer.weight_trainable = trainable_of_parameter[layer.parameter];
    const auto bias = place.find(std::string(p.module()) + ".bias");
    layer.bias_trainable = bias == place.end() ? -1 : bias->second;
  };
  for (int64_t layer = 0; layer < spec_.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    nn::Block& block = blocks_[static_cast<size_t>(layer)];
    block.attention_norm.trainable = place.at(prefix + "input_layernorm.weight");
    block.mlp_norm.trainable = place.at(prefix + "post_attention_layernorm.weight");
    for (nn::Linear* linear : {&block.attention.q, &block.attention.k, &block.attention.v, &block.attention.o,
                               &block.mlp.gate, &block.mlp.up, &block.mlp.down}) {
      set_linear(*linear);
    }
  }
  final_norm_.trainable = place.at("model.norm.weight");
  embedding_.trainable = place.at("model.embed_tokens.weight");
  set_linear(head_);
  lowest_layer_ = embedding_.trainable >= 0 ? 0 : lowest_layer;
}

void Llama::forward(nn::Pass& pass, const Tensor& normed) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const int64_t tokens = pass.batch.tokens();
  const Shape shape{tokens, spec_.hidden};
  nn::BlockState state;
  state.input = scratch.take(pass.activation, shape);
  Tensor next = scratch.take(pass.activation, shape);
  state.take(scratch, spec_, pass.activation, tokens, spec::Recompute::none, true);
  embedding_.forward(pass, state.input);
  for (const nn::Block& block : blocks_) {
    block.forward(pass, next, state);
    std::swap(state.input, next);
  }
  final_norm_.forward(pass, normed, {}, state.input);
}

void Llama::logits(nn::Pass& pass, const Tensor& logits, const Tensor& normed) const {
  head_.forward(pass, logits, normed);
}

void Llama::loss(nn::Pass& pass, const Tensor& losses, const Tensor& targets) const {
  if (pass.training) return train(pass, losses, targets);
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const Tensor normed = scratch.take(pass.activation, Shape{pass.batch.tokens(), spec_.hidden});
  forward(pass, normed);
  nn::lm_loss(pass, head_, losses, {}, normed, targets);
}

void Llama::train(nn::Pass& pass, const Tensor& losses, const Tensor& targets) const {
  const nn::Training& training = *pass.training;
  Arena& saved = training.saved;
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope saved_scope(saved);
  const Arena::Scope scratch_scope(scratch);
  const int64_t tokens = pass.batch.tokens();
  const Shape shape{tokens, spec_.hidden};
  const size_t lowest = static_cast<size_t>(lowest_layer_);

  // Blocks below the lowest trained one pass their stream through two buffers in scratch and keep nothing.
  nn::BlockState refilled;
  refilled.take(saved, spec_, pass.activation, tokens, training.recompute, false);
  std::vector<nn::BlockState> states(blocks_.size() - lowest, refilled);
  Tensor stream = saved.take(pass.activation, shape);
  if (lowest > 0) {
    const Arena::Scope below(scratch);
    nn::BlockState state;
    state.input = scratch.take(pass.activation, shape);
    Tensor next = scratch.take(pass.activation, shape);
    state.take(scratch, spec_, pass.activation, tokens, spec::Recompute::none, true);
    embedding_.forward(pass, state.input);
    for (size_t layer = 0; layer < lowest; ++layer) {
      blocks_[layer].forward(pass, layer + 1 == lowest ? stream : next, state);
      std::swap(state.input, next);
    }
  } else {
    embedding_.forward(pass, stream);
  }
  for (nn::BlockState& state : states) {
    state.input = stream;
    state.take(saved, spec_, pass.activation, tokens, training.recompute, true);
    stream = saved.take(pass.activation, shape);
    blocks_[lowest + static_cast<size_t>(&state - states.data())].forward(pass, stream, state);
  }
  const Tensor normed = saved.take(pass.activation, shape);
  const Tensor rstd = saved.take(DType::f32, Shape{tokens});
  final_norm_.forward(pass, normed, rstd, stream);

  const Tensor dstream = scratch.take(pass.activation, shape);
  {
    const Arena::Scope scope(scratch);
    const Tensor dnormed = scratch.take(pass.activation, shape);
    nn::lm_loss(pass, head_, losses, dnormed, normed, targets);
    if (states.empty() && final_norm_.trainable < 0) return;
    final_norm_.backward(pass, dstream, dnormed, stream, rstd, false);
  }
  for (size_t layer = blocks_.size(); layer-- > lowest;) {
    nn::BlockState& state = states[layer - lowest];
    blocks_[layer].refill(pass, state, training.recompute);
    blocks_[layer].backward(pass, dstream, state, layer > lowest || embedding_.trainable >= 0);
  }
  embedding_.backward(pass, dstream);
}

PassBytes llama_pass_bytes(const spec::ModelSpec& spec, const PassShape& shape) {
  const size_t activation = size_of(shape.activation);
  const size_t stream = Arena::footprint(static_cast<size_t>(shape.tokens * spec.hidden) * activation);
  const size_t block = nn::Block::forward_bytes(spec, shape.tokens, shape.longest, shape.adapter_rank, activation,
                                                shape.decoded, shape.threads);
  const size_t backward = nn::Block::backward_bytes(spec, shape.tokens, shape.longest, shape.adapter_rank, activation,
                                                    shape.decoded, shape.threads);
  const size_t head =
      nn::Linear::bytes(shape.logit_rows, spec.vocab, spec.hidden, shape.adapter_rank, activation, shape.decoded);
  const auto loss = [&](bool training) {
    return nn::lm_loss_bytes(spec, shape.tokens, shape.adapter_rank, activation, shape.decoded, training);
  };
  PassBytes bytes;
  bytes.forward = std::max(2 * stream + nn::block_state_bytes(spec, activation, shape.tokens) + block, head);
  bytes.loss = stream + std::max(bytes.forward, loss(false));
  bytes.training = stream + std::max({bytes.forward, backward, stream + loss(true)});
  return bytes;
}

}  // namespace ingot::models
