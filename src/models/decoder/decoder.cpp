#include "models/decoder/decoder.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "models/decoder/binder.h"
#include "nn/transfer.h"
#include "spec/part.h"

namespace ingot::models {

namespace {

using spec::Role;

ops::Activation activation_of(spec::Activation activation) {
  switch (activation) {
    case spec::Activation::silu: return ops::Activation::silu;
    case spec::Activation::gelu: return ops::Activation::gelu;
    case spec::Activation::gelu_tanh: return ops::Activation::gelu_tanh;
  }
  return ops::Activation::silu;
}

Tensor upload(Device& device, Buffer& buffer, const std::vector<float>& values) {
  buffer = Buffer(device, values.size() * sizeof(float));
  device.copy_from_host(buffer.data(), values.data(), buffer.bytes());
  return buffer.view(DType::f32, Shape{static_cast<int64_t>(values.size())});
}

nn::Mlp mlp_of(const Binder& binder, const spec::ModelSpec& spec, Place at) {
  return {binder.linear(Role::gate, at), binder.linear(Role::up, at), binder.linear(Role::down, at),
          activation_of(spec.activation)};
}

ops::AttentionAttributes attributes_of(const spec::ModelSpec& spec, int64_t layer, const Tensor& slopes) {
  ops::AttentionAttributes attributes;
  attributes.heads = spec.heads;
  attributes.kv_heads = spec.kv_heads;
  attributes.head_dim = spec.head_dim;
  attributes.scale = spec.attention_scale > 0 ? static_cast<float>(spec.attention_scale)
                                              : 1.0F / std::sqrt(static_cast<float>(spec.head_dim));
  attributes.window = spec.window_of(layer);
  attributes.softcap = static_cast<float>(spec.attention_softcap);
  attributes.slopes = slopes;
  return attributes;
}

// Sets the indices of a layer's parameters among the trainable ones.
void set_layer(nn::Linear& layer, const std::vector<int>& trainable) {
  layer.weight_trainable = trainable[layer.parameter];
  layer.bias_trainable = layer.bias ? trainable[layer.bias_parameter] : -1;
}
void set_layer(nn::Norm& norm, const std::vector<int>& trainable) {
  norm.trainable = trainable[norm.parameter];
  norm.bias_trainable = norm.bias ? trainable[norm.bias_parameter] : -1;
}

}  // namespace

Decoder::Decoder(const spec::ModelSpec& whole, const spec::Part& part, const WeightSet& weights, Device& device)
    : part_(part), spec_(spec::sizes_of(whole, part)) {
  const spec::ModelSpec& spec = spec_;
  Tensor angles;
  Tensor slopes;
  if (spec.positions == spec::Positions::rotary) angles = upload(device, frequencies_, spec::rope_frequencies(spec));
  if (spec.positions == spec::Positions::alibi) {
    const std::vector<float> all = spec::alibi_slopes(whole);
    const auto own = all.begin() + part.tp_rank * spec.heads;
    slopes = upload(device, slopes_, {own, own + spec.heads});
  }

  std::vector<spec::ParamSpec> table;
  for (spec::HeldParameter& p : spec::held_parameters(whole, part)) table.push_back(std::move(p.held));
  const Binder binder(spec, table, weights);
  if (part.first()) {
    embedding_.parameter = binder.index(Role::embedding);
    embedding_.table = binder.matrix(Role::embedding);
    embedding_.scale = static_cast<float>(spec.embedding_scale);
    if (spec.positions == spec::Positions::learned) {
      embedding_.positions_parameter = binder.index(Role::position_embedding);
      embedding_.positions = binder.matrix(Role::position_embedding);
    }
  }
  const spec::Range blocks = spec::blocks_of(whole, part);
  for (int64_t layer = blocks.begin; layer < blocks.end; ++layer) {
    const Place at{layer};
    nn::Block block;
    block.attention_norm = binder.norm(Role::attention_norm, at);
    nn::Attention& attention = block.attention;
    attention.qkv = binder.linear(Role::qkv, at);
    attention.q = binder.linear(Role::q, at);
    attention.k = binder.linear(Role::k, at);
    attention.v = binder.linear(Role::v, at);
    attention.o = binder.linear(Role::attention_out, at);
    attention.q_norm = binder.norm(Role::q_norm, at);
    attention.k_norm = binder.norm(Role::k_norm, at);
    attention.qkv_by_head = spec.qkv_by_head;
    attention.clip = static_cast<float>(spec.clip_qkv);
    attention.frequencies = angles;
    attention.layer = layer - blocks.begin;
    attention.attributes = attributes_of(spec, layer, slopes);
    block.post_attention_norm = binder.norm(Role::post_attention_norm, at);
    block.mlp_norm = binder.norm(Role::mlp_norm, at);
    if (spec.experts > 0) {
      block.experts.router = binder.linear(Role::router, at);
      for (int64_t e = 0; e < spec.experts; ++e) block.experts.mlps.push_back(mlp_of(binder, spec, {layer, e}));
    } else {
      block.mlp = mlp_of(binder, spec, at);
    }
    block.post_mlp_norm = binder.norm(Role::post_mlp_norm, at);
    block.parallel = spec.parallel_residual;
    blocks_.push_back(std::move(block));
  }
  if (!part.last()) return;
  final_norm_ = binder.norm(Role::final_norm);
  if (spec.tied_head) {
    head_.linear.parameter = embedding_.parameter;
    head_.linear.weight = embedding_.table;
    embedding_.tied = true;
  } else {
    head_.linear = binder.linear(Role::head);
  }
  head_.scale = static_cast<float>(spec.logit_scale);
  head_.softcap = static_cast<float>(spec.final_softcap);
}

void Decoder::set_trainable(const std::vector<int>& trainable_of_parameter, int64_t lowest_trainable_layer) {
  for (nn::Block& block : blocks_) {
    for (nn::Linear* linear : block.linears()) set_layer(*linear, trainable_of_parameter);
    for (nn::Norm* norm : block.norms()) set_layer(*norm, trainable_of_parameter);
  }
  if (part_.last()) {
    set_layer(final_norm_, trainable_of_parameter);
    set_layer(head_.linear, trainable_of_parameter);
  }
  if (embedding_.table) embedding_.trainable = trainable_of_parameter[embedding_.parameter];
  if (embedding_.positions) embedding_.positions_trainable = trainable_of_parameter[embedding_.positions_parameter];
  lowest_trainable_layer_ = embedding_.has_trainable() ? 0 : lowest_trainable_layer;
}

void Decoder::begin_residual(nn::Pass& pass, const Tensor& residual) const {
  if (part_.first()) return embedding_.forward(pass, residual);
  nn::receive(pass.ops.device, pass.pp, residual, pass.pp.rank() - 1);
}

void Decoder::forward(nn::Pass& pass, const Tensor& normed) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const int64_t tokens = pass.batch.tokens();
  const Shape shape{tokens, spec_.hidden};
  nn::BlockState state;
  state.input = scratch.take(pass.activation, shape);
  Tensor next = scratch.take(pass.activation, shape);
  state.take(scratch, spec_, pass.activation, tokens, spec::Recompute::none, true);
  begin_residual(pass, state.input);
  for (const nn::Block& block : blocks_) {
    block.forward(pass, next, state);
    std::swap(state.input, next);
  }
  if (!part_.last()) return nn::send(pass.ops.device, pass.pp, state.input, pass.pp.rank() + 1);
  final_norm_.forward(pass, normed, {}, state.input);
}

void Decoder::logits(nn::Pass& pass, const Tensor& logits, const Tensor& normed) const {
  head_.forward(pass, logits, normed);
}

void Decoder::forward(nn::Pass& pass, Slot& slot) const {
  slot.clear();
  const Shape shape{pass.batch.tokens(), spec_.hidden};
  if (!pass.training) {
    if (part_.last()) slot.normed = slot.arena.take(pass.activation, shape);
    return forward(pass, slot.normed);
  }
  forward_blocks(pass, slot);
  if (!part_.last()) return nn::send(pass.ops.device, pass.pp, slot.residual, pass.pp.rank() + 1);
  slot.normed = slot.arena.take(pass.activation, shape);
  slot.statistics.rstd = slot.arena.take(DType::f32, Shape{shape[0]});
  if (spec_.norm == spec::NormKind::layer) slot.statistics.mean = slot.arena.take(DType::f32, Shape{shape[0]});
  final_norm_.forward(pass, slot.normed, slot.statistics, slot.residual);
}

void Decoder::forward_blocks(nn::Pass& pass, Slot& slot) const {
  const spec::Recompute recompute = pass.training->recompute;
  Arena& scratch = pass.ops.scratch;
  const int64_t tokens = pass.batch.tokens();
  const Shape shape{tokens, spec_.hidden};
  const size_t lowest = static_cast<size_t>(lowest_trainable_layer_);

  // All blocks share the memory of the tensors that backward recomputes.
  nn::BlockState recomputed;
  recomputed.take(slot.arena, spec_, pass.activation, tokens, recompute, false);
  slot.states.assign(blocks_.size() - lowest, recomputed);
  slot.residual = slot.arena.take(pass.activation, shape);
  if (lowest > 0) {
    // Blocks below the lowest trainable one alternate between two residual buffers in scratch and save nothing.
    const Arena::Scope scope(scratch);
    nn::BlockState state;
    state.input = scratch.take(pass.activation, shape);
    Tensor next = scratch.take(pass.activation, shape);
    state.take(scratch, spec_, pass.activation, tokens, spec::Recompute::none, true);
    begin_residual(pass, state.input);
    for (size_t layer = 0; layer < lowest; ++layer) {
      blocks_[layer].forward(pass, layer + 1 == lowest ? slot.residual : next, state);
      std::swap(state.input, next);
    }
  } else {
    begin_residual(pass, slot.residual);
  }
  for (size_t layer = lowest; layer < blocks_.size(); ++layer) {
    nn::BlockState& state = slot.states[layer - lowest];
    state.input = slot.residual;
    state.take(slot.arena, spec_, pass.activation, tokens, recompute, true);
    slot.residual = slot.arena.take(pass.activation, shape);
    blocks_[layer].forward(pass, slot.residual, state);
  }
}

void Decoder::loss(nn::Pass& pass, Slot& slot, const nn::Objective& objective) const {
  if (!part_.last()) return;
  if (!pass.training) return objective.compute(pass, head_, {}, slot.normed);
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const Tensor dnormed = scratch.take(pass.activation, slot.normed.shape);
  objective.compute(pass, head_, dnormed, slot.normed);
  if (slot.states.empty() && !final_norm_.has_trainable()) return;  // nothing below the head is trainable
  slot.dresidual = slot.arena.take(pass.activation, slot.residual.shape);
  final_norm_.backward(pass, slot.dresidual, dnormed, slot.residual, slot.statistics, false);
}

void Decoder::backward(nn::Pass& pass, Slot& slot) const {
  if (!part_.last()) {
    slot.dresidual = slot.arena.take(pass.activation, slot.residual.shape);
    nn::receive(pass.ops.device, pass.pp, slot.dresidual, pass.pp.rank() + 1);
  }
  if (slot.dresidual) {
    const size_t lowest = static_cast<size_t>(lowest_trainable_layer_);
    for (size_t layer = blocks_.size(); layer-- > lowest;) {
      nn::BlockState& state = slot.states[layer - lowest];
      blocks_[layer].refill(pass, state, pass.training->recompute);
      const bool input_gradient = layer > lowest || embedding_.has_trainable() || !part_.first();
      blocks_[layer].backward(pass, slot.dresidual, state, input_gradient);
    }
    if (part_.first()) {
      embedding_.backward(pass, slot.dresidual);
    } else {
      nn::send(pass.ops.device, pass.pp, slot.dresidual, pass.pp.rank() - 1);
    }
  }
  slot.clear();
}

PassBytes decoder_pass_bytes(const spec::ModelSpec& spec, const PassShape& shape) {
  const size_t residual = shape.matrix_bytes(shape.tokens, spec.hidden);
  const size_t block = std::max(nn::Block::forward_bytes(spec, shape), nn::Embedding::bytes(spec, shape));
  const size_t backward = nn::Block::backward_bytes(spec, shape);
  const size_t head = nn::Linear::bytes(shape.logit_rows, spec.vocab, spec.hidden, shape, false);
  PassBytes bytes;
  bytes.forward =
      std::max(2 * residual + nn::block_state_bytes(spec, size_of(shape.activation), shape.tokens) + block, head);
  bytes.loss_gradient = residual;
  bytes.backward = backward;
  return bytes;
}

}  // namespace ingot::models
