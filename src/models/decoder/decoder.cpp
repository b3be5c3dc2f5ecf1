#include "models/decoder/decoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "models/decoder/binder.h"
#include "nn/next_token_loss.h"
#include "nn/row_exchange.h"
#include "nn/transfer.h"
#include "spec/model_shard.h"

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

nn::Attention attention_of(const Binder& binder, const spec::Attention& spec, Place at) {
  nn::Attention attention;
  attention.qkv = binder.linear(Role::qkv, at);
  attention.q = binder.linear(Role::q, at);
  attention.k = binder.linear(Role::k, at);
  attention.v = binder.linear(Role::v, at);
  attention.o = binder.linear(Role::attention_out, at);
  attention.q_norm = binder.norm(Role::q_norm, at);
  attention.k_norm = binder.norm(Role::k_norm, at);
  attention.qkv_by_head = spec.qkv_by_head;
  attention.clip = static_cast<float>(spec.clip_qkv);
  ops::AttentionAttributes& attributes = attention.attributes;
  attributes.heads = spec.heads;
  attributes.kv_heads = spec.kv_heads;
  attributes.head_dim = spec.head_dim;
  attributes.scale =
      spec.scale > 0 ? static_cast<float>(spec.scale) : 1.0F / std::sqrt(static_cast<float>(spec.head_dim));
  attributes.window = spec.window;
  attributes.softcap = static_cast<float>(spec.softcap);
  return attention;
}

void bind_mlp(nn::Block& block, const Binder& binder, const spec::Dense& spec, Place at) {
  block.mlp = {binder.linear(Role::gate, at), binder.linear(Role::up, at), binder.linear(Role::down, at),
               activation_of(spec.activation)};
}

void bind_mlp(nn::Block& block, const Binder& binder, const spec::Experts& spec, Place at) {
  block.experts.router = binder.linear(Role::router, at);
  for (at.expert = 0; at.expert < spec.count; ++at.expert) {
    if (!binder.has(Role::expert_up, at)) continue;  // another expert-parallel rank has it
    block.experts.add({binder.linear(Role::expert_gate, at), binder.linear(Role::expert_up, at),
                       binder.linear(Role::expert_down, at), activation_of(spec.expert.activation)});
  }
}

bool alike(const std::vector<spec::SavedTensor>& a, const std::vector<spec::SavedTensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const spec::SavedTensor& x, const spec::SavedTensor& y) {
    return x.id == y.id && x.features == y.features && x.kind == y.kind && x.rows == y.rows && x.cheap == y.cheap;
  });
}

// What a block needs besides the residual where no backward follows.
std::vector<spec::SavedTensor> unsaved_tensors(std::vector<spec::SavedTensor> tensors) {
  std::erase_if(tensors, [](const spec::SavedTensor& t) { return t.id == spec::Saved::middle; });
  return tensors;
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

Decoder::Decoder(const spec::ModelSpec& whole, const spec::ModelShard& shard, const WeightSet& weights, Device& device)
    : whole_(whole), shard_(shard), spec_(spec::sizes_of(whole, shard)), held_(spec::held_parameters(whole, shard)) {
  const spec::ModelSpec& spec = spec_;
  const Binder binder(spec, held_, weights);
  if (shard.first()) {
    embedding_.parameter = binder.index(Role::embedding);
    embedding_.table = binder.matrix(Role::embedding);
    embedding_.scale = static_cast<float>(spec.embedding_scale);
    embedding_.tied = spec.tied_head;
    embedding_.part = {spec::vocabulary_of(whole, shard).begin, shard.tp > 1};
    if (spec.learned_positions) {
      embedding_.positions_parameter = binder.index(Role::position_embedding);
      embedding_.positions = binder.matrix(Role::position_embedding);
    }
  }
  const spec::Range blocks = spec::blocks_of(whole, shard);
  first_block_ = blocks.begin;
  for (int64_t layer = blocks.begin; layer < blocks.end; ++layer) {
    const Place at{layer};
    const spec::LayerSpec& layer_spec = spec.layer(layer - blocks.begin);
    nn::Block block;
    block.attention_norm = binder.norm(Role::attention_norm, at);
    block.attention = attention_of(binder, layer_spec.attention, at);
    block.attention.layer = layer - blocks.begin;
    block.attention.frequencies = frequencies(layer_spec.attention, device);
    block.attention.attributes.slopes = slopes(whole.layer(layer).attention, device);
    block.post_attention_norm = binder.norm(Role::post_attention_norm, at);
    block.mlp_norm = binder.norm(Role::mlp_norm, at);
    std::visit([&](const auto& mlp) { bind_mlp(block, binder, mlp, at); }, layer_spec.mlp);
    block.post_mlp_norm = binder.norm(Role::post_mlp_norm, at);
    block.parallel = layer_spec.parallel_residual;
    const size_t number = blocks_.size();
    like_previous_.push_back(number > 0 && alike(tensors_of(number, DType::f32), tensors_of(number - 1, DType::f32)));
    blocks_.push_back(std::move(block));
  }
  if (!shard.last()) return;
  final_norm_ = binder.norm(Role::final_norm);
  if (spec.tied_head) {
    head_.linear.parameter = binder.index(Role::embedding);
    head_.linear.weight = binder.matrix(Role::embedding);
  } else {
    head_.linear = binder.linear(Role::head);
  }
  head_.first = spec::vocabulary_of(whole, shard).begin;
  head_.vocabulary = whole.vocab;
  head_.linear.column_parallel = true;
  head_.linear.vocabulary = head_.vocabulary;
  head_.linear.first_output = head_.first;
  for (spec::ModelShard each = shard; std::ssize(vocabulary_parts_) < shard.tp;) {
    each.tp_rank = std::ssize(vocabulary_parts_);
    vocabulary_parts_.push_back(spec::vocabulary_of(whole, each).count());
  }
  head_.scale = static_cast<float>(spec.logit_scale);
  head_.softcap = static_cast<float>(spec.final_softcap);
}

Tensor Decoder::upload(Device& device, std::vector<float> values) {
  const auto view = [](const Table& table) {
    return table.buffer.view(DType::f32, Shape{static_cast<int64_t>(table.values.size())});
  };
  for (const Table& table : tables_) {
    if (table.values == values) return view(table);
  }
  Buffer buffer(device, values.size() * sizeof(float));
  device.copy_from_host(buffer.data(), values.data(), buffer.bytes());
  return view(tables_.emplace_back(std::move(values), std::move(buffer)));
}

Tensor Decoder::frequencies(const spec::Attention& attention, Device& device) {
  if (!attention.rope) return {};
  return upload(device, spec::rope_frequencies(*attention.rope, attention.head_dim));
}

Tensor Decoder::slopes(const spec::Attention& whole, Device& device) {
  if (!whole.alibi) return {};
  const std::vector<float> all = spec::alibi_slopes(whole);
  const int64_t heads = whole.heads / shard_.tp;
  const auto begin = all.begin() + shard_.tp_rank * heads;
  return upload(device, {begin, begin + heads});
}

void Decoder::set_trainable(const std::vector<int>& trainable_of_parameter, int64_t lowest_trainable_layer,
                            bool input_gradient) {
  for (nn::Block& block : blocks_) {
    for (nn::Linear* linear : block.linears()) set_layer(*linear, trainable_of_parameter);
    for (nn::Norm* norm : block.norms()) set_layer(*norm, trainable_of_parameter);
  }
  if (shard_.last()) {
    set_layer(final_norm_, trainable_of_parameter);
    set_layer(head_.linear, trainable_of_parameter);
  }
  if (embedding_.table) embedding_.trainable = trainable_of_parameter[embedding_.parameter];
  if (embedding_.positions) embedding_.positions_trainable = trainable_of_parameter[embedding_.positions_parameter];
  input_gradient_ = input_gradient;
  lowest_trainable_layer_ = embedding_.has_trainable() || input_gradient ? 0 : lowest_trainable_layer;
}

std::vector<int> Decoder::forward_weight_units() const { return nn::forward_weight_units(whole_, shard_); }

std::vector<int> Decoder::backward_weight_units() const {
  return nn::backward_weight_units(whole_, shard_, lowest_trainable_layer_);
}

void Decoder::need_weights(nn::WeightGatherer& weights, int64_t layer) const {
  const bool has_tied_copy = whole_.tied_head && !shard_.first();
  if (layer == std::ssize(blocks_) && has_tied_copy) weights.need(0);
  weights.need(static_cast<int>(1 + first_block_ + layer));
}

std::vector<spec::SavedTensor> Decoder::tensors_of(size_t block, DType activation) const {
  return spec::block_tensors(spec_, spec_.layers[block], static_cast<int64_t>(size_of(activation)), shard_.row_ranks());
}

Tensor Decoder::forward_blocks(nn::Pass& pass, size_t count, const Tensor& input, const Tensor& last) const {
  Arena& scratch = pass.ops.scratch;
  const int64_t tokens = pass.batch.tokens();
  const Shape shape{tokens / shard_.row_ranks(), spec_.hidden};
  const Tensor residual = scratch.allocate(pass.activation, shape);  // blocks add to it in place
  if (shard_.first()) {
    begin_layer(pass, -1);
    embedding_.forward(pass, residual);
  }
  nn::BlockState state;
  state.input = shard_.first() ? residual : input;
  const size_t begin = scratch.mark();
  for (size_t layer = 0; layer < count; ++layer) {
    if (layer == 0 || !like_previous(layer)) {
      scratch.release(begin);
      nn::BlockState other;  // layers of another kind may lack tensors that this one has
      other.input = state.input;
      state = other;
      state.allocate(scratch, unsaved_tensors(tensors_of(layer, pass.activation)), pass.activation, tokens,
                     spec::Recompute::none, true);
    }
    const Tensor& output = last && layer + 1 == count ? last : residual;
    state.middle = output;
    begin_layer(pass, static_cast<int64_t>(layer));
    blocks_[layer].forward(pass, output, state);
    state.input = output;
  }
  return state.input;
}

void Decoder::forward(nn::Pass& pass, const Tensor& output, const Tensor& input) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const Tensor residual = forward_blocks(pass, blocks_.size(), input, shard_.last() ? Tensor{} : output);
  if (!shard_.last()) return;
  begin_layer(pass, std::ssize(blocks_));
  final_norm_.forward(pass, output, {}, residual);
}

bool Decoder::is_recordable(const nn::Pass& pass) const {
  return std::ranges::all_of(blocks_,
                             [&](const nn::Block& block) { return !block.experts || block.experts.is_grouped(pass); });
}

void Decoder::logits(nn::Pass& pass, const Tensor& logits, const Tensor& normed) const {
  if (!head_.is_part()) return head_.forward(pass, logits, normed);
  const Arena::Scope scope(pass.ops.scratch);
  const Tensor part = pass.ops.scratch.allocate(DType::f32, Shape{logits.shape[0], head_.linear.weight.out});
  head_.forward(pass, part, normed);
  nn::gather_columns_over_ranks(pass, logits, part, vocabulary_parts_);
}

int64_t Decoder::logit_columns(const nn::Pass& pass, int64_t rows) const {
  return shard_.last() ? head_.logit_columns(pass, rows) : whole_.vocab;
}

void Decoder::losses(nn::Pass& pass, const Tensor& losses, const Tensor& targets, const Tensor& normed) const {
  nn::NextTokenLoss(losses, targets).compute(pass, head_, {}, normed);
}

void Decoder::forward(nn::Pass& pass, Slot& slot) const {
  if (!shard_.first() && !slot.input) throw_error(ErrorKind::internal, "a later stage of a pipeline has no input");
  const Shape shape{pass.batch.tokens() / shard_.row_ranks(), spec_.hidden};
  slot.shared.release(0);
  if (!pass.training) {
    Tensor& output = shard_.last() ? slot.normed : slot.residual;
    output = (shard_.last() ? slot.arena : slot.shared).allocate(pass.activation, shape);
    return forward(pass, output, slot.input);
  }
  forward_saving(pass, slot);
  if (!shard_.last()) return;
  slot.normed = slot.arena.allocate(pass.activation, shape);
  slot.statistics.rstd = slot.arena.allocate(DType::f32, Shape{shape[0]});
  if (spec_.norm == spec::NormKind::layer) slot.statistics.mean = slot.arena.allocate(DType::f32, Shape{shape[0]});
  begin_layer(pass, std::ssize(blocks_));
  final_norm_.forward(pass, slot.normed, slot.statistics, slot.residual);
}

void Decoder::forward_saving(nn::Pass& pass, Slot& slot) const {
  const spec::Recompute recompute = pass.training->recompute;
  const int64_t tokens = pass.batch.tokens();
  const Shape shape{tokens / shard_.row_ranks(), spec_.hidden};
  const size_t lowest = static_cast<size_t>(lowest_trainable_layer_);

  // Recomputed tensors share one range of memory, which one block after another uses.
  slot.states.resize(blocks_.size() - lowest);
  const size_t begin = slot.shared.mark();
  size_t end = begin;
  for (size_t i = 0; i < slot.states.size(); ++i) {
    if (i > 0 && like_previous(lowest + i)) {
      slot.states[i] = slot.states[i - 1];
      continue;
    }
    slot.shared.release(begin);
    slot.states[i].allocate(slot.shared, tensors_of(lowest + i, pass.activation), pass.activation, tokens, recompute,
                            false);
    end = std::max(end, slot.shared.mark());
  }
  slot.shared.allocate_bytes(end - slot.shared.mark());
  // The residual before block `layer`; on earlier stages what comes after the last block is sent and not kept.
  const auto residual_before = [&](size_t layer) {
    const bool sent = layer == blocks_.size() && !shard_.last();
    return (sent ? slot.shared : slot.arena).allocate(pass.activation, shape);
  };
  slot.residual = shard_.first() || lowest > 0 ? residual_before(lowest) : slot.input;
  if (lowest > 0) {
    const Arena::Scope below(pass.ops.scratch);
    forward_blocks(pass, lowest, slot.input, slot.residual);
  } else if (shard_.first()) {
    begin_layer(pass, -1);
    embedding_.forward(pass, slot.residual);
  }
  for (size_t layer = lowest; layer < blocks_.size(); ++layer) {
    nn::BlockState& state = slot.states[layer - lowest];
    state.input = slot.residual;
    state.allocate(slot.arena, tensors_of(layer, pass.activation), pass.activation, tokens, recompute, true);
    slot.residual = residual_before(layer + 1);
    begin_layer(pass, static_cast<int64_t>(layer));
    blocks_[layer].forward(pass, slot.residual, state);
  }
  if (!shard_.last()) slot.dresidual = slot.shared.allocate(pass.activation, shape);
}

bool Decoder::only_head_trainable() const {
  return shard_.last() && lowest_trainable_layer_ == std::ssize(blocks_) && !final_norm_.has_trainable();
}

void Decoder::loss(nn::Pass& pass, Slot& slot, const nn::Objective& objective) const {
  if (!shard_.last()) return;
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const Tensor normed = nn::all_rows(pass, slot.normed);
  if (!pass.training) return objective.compute(pass, head_, {}, normed);
  const Tensor dnormed = scratch.allocate(pass.activation, normed.shape);
  objective.compute(pass, head_, dnormed, normed);
  slot.dresidual = slot.arena.allocate(pass.activation, slot.residual.shape);
  if (only_head_trainable()) return;
  nn::OwnRowsPass own(pass);
  final_norm_.backward(own.pass(), slot.dresidual, nn::own_rows(pass, dnormed), slot.residual, slot.statistics, false);
}

void Decoder::backward(nn::Pass& pass, Slot& slot) const {
  if (only_head_trainable()) return;
  const size_t lowest = static_cast<size_t>(lowest_trainable_layer_);
  for (size_t layer = blocks_.size(); layer-- > lowest;) {
    nn::BlockState& state = slot.states[layer - lowest];
    begin_layer(pass, static_cast<int64_t>(layer), true);
    blocks_[layer].recompute_activations(pass, state, pass.training->recompute);
    const bool input_gradient = layer > lowest || embedding_.has_trainable() || input_gradient_;
    blocks_[layer].backward(pass, slot.dresidual, state, input_gradient);
  }
  if (!embedding_.has_trainable()) return;
  if (pass.observer != nullptr) pass.observer->begins(-1, true);  // which needs no weights
  embedding_.backward(pass, slot.dresidual);
}

PassBytes decoder_pass_bytes(const spec::ModelSpec& spec, const PassShape& shape) {
  const auto activation_bytes = static_cast<int64_t>(size_of(shape.activation));
  const size_t residual = shape.matrix_bytes(shape.own_rows(shape.tokens), spec.hidden);
  const size_t block = std::max(
      spec::max_over_layers(
          spec, [&](const spec::LayerSpec& layer) { return nn::Block::forward_bytes(layer, spec.hidden, shape); }),
      nn::Embedding::bytes(spec, shape));
  const size_t state = spec::max_over_layers(spec, [&](const spec::LayerSpec& layer) {
    return nn::block_state_bytes(unsaved_tensors(spec::block_tensors(spec, layer, activation_bytes, shape.own_ranks())),
                                 shape.tokens);
  });
  const size_t backward = spec::max_over_layers(
      spec, [&](const spec::LayerSpec& layer) { return nn::Block::backward_bytes(layer, spec.hidden, shape); });
  const int64_t part = (spec.vocab + shape.tp - 1) / shape.tp;  // of the vocabulary, the largest
  size_t head = nn::Linear::bytes(shape.logit_rows, part, spec.hidden, shape, false);
  if (shape.tp > 1) {
    head = Arena::footprint(DType::f32, Shape{shape.logit_rows, part}) +
           std::max(head, nn::gather_columns_bytes(shape.logit_rows, spec.vocab));
  }
  PassBytes bytes;
  const size_t input = shape.pp > 1 ? residual : 0;
  bytes.forward = std::max(residual + state + block + input, head);
  bytes.loss_input = nn::all_rows_bytes(shape.tokens, spec.hidden, shape);
  bytes.loss_gradient = shape.matrix_bytes(shape.tokens, spec.hidden);
  bytes.backward = std::max(
      backward, bytes.loss_input + bytes.loss_gradient + nn::Norm::bytes(shape.own_rows(shape.tokens), spec.hidden));
  return bytes;
}

}  // namespace ingot::models
