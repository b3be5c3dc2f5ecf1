#include "nn/block.h"

#include <algorithm>

#include "nn/row_exchange.h"
#include "ops/elementwise.h"

namespace ingot::nn {

namespace {

// out = residual + norm(result). If `out` is the residual, `result` is overwritten.
void add_normed(Pass& pass, const Tensor& out, const Tensor& residual, const Norm& norm,
                const NormStatistics& statistics, const Tensor& result) {
  const Tensor& normed = out.data == residual.data ? result : out;
  norm.forward(pass, normed, statistics, result);
  ops::add(pass.ops, out, normed, residual);
}

// The state with all rows of what attention or MLP reads, in scratch memory (nn/row_exchange.h).
BlockState with_all_rows(Pass& pass, const BlockState& state, Tensor BlockState::* normed) {
  BlockState all = state;
  all.*normed = all_rows(pass, state.*normed);
  return all;
}

}  // namespace

void Block::forward(Pass& pass, const Tensor& out, BlockState& state) const {
  attention_norm.forward(pass, state.attention_normed, state.attention_statistics, state.input);
  // Before anything is added to the residual, which may be in place.
  if (parallel) mlp_norm.forward(pass, state.mlp_normed, state.mlp_statistics, state.input);
  const Tensor& middle = parallel ? out : state.middle;
  {
    const Arena::Scope scope(pass.ops.scratch);
    BlockState all = with_all_rows(pass, state, &BlockState::attention_normed);
    attention.forward(pass, post_attention_norm ? state.attention_out : middle, all,
                      post_attention_norm ? Tensor{} : state.input);
  }
  if (post_attention_norm)
    add_normed(pass, middle, state.input, post_attention_norm, state.post_attention_statistics, state.attention_out);

  if (!parallel) mlp_norm.forward(pass, state.mlp_normed, state.mlp_statistics, state.middle);
  const Tensor& result = post_mlp_norm ? state.mlp_out : out;
  const Tensor residual = post_mlp_norm ? Tensor{} : middle;
  {
    const Arena::Scope scope(pass.ops.scratch);
    BlockState all = with_all_rows(pass, state, &BlockState::mlp_normed);
    if (experts) {
      experts.forward(pass, result, all, residual);
    } else {
      mlp.forward(pass, result, all, residual);
    }
  }
  if (post_mlp_norm) add_normed(pass, out, state.middle, post_mlp_norm, state.post_mlp_statistics, state.mlp_out);
}

void Block::recompute_activations(Pass& pass, BlockState& state, spec::Recompute recompute) const {
  switch (recompute) {
    case spec::Recompute::none: return;
    case spec::Recompute::selective:
      attention_norm.forward(pass, state.attention_normed, {}, state.input);
      mlp_norm.forward(pass, state.mlp_normed, {}, parallel ? state.input : state.middle);
      if (!experts) {
        mlp.recompute_activations(pass, state);
      } else if (pass.ep == nullptr) {
        const Arena::Scope scope(pass.ops.scratch);
        BlockState all = with_all_rows(pass, state, &BlockState::mlp_normed);
        experts.recompute_activations(pass, all);
      }
      return;
    case spec::Recompute::full: {
      const Arena::Scope scope(pass.ops.scratch);
      // The forward also computes the statistics of the last norm, which needs an output.
      const Tensor out = post_mlp_norm ? pass.ops.scratch.allocate(state.input.dtype, state.input.shape) : Tensor{};
      forward(pass, out, state);
      return;
    }
  }
}

void Block::backward(Pass& pass, const Tensor& dresidual, BlockState& state, bool input_gradient) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  OwnRowsPass own(pass);  // for norms
  const Tensor dnormed = scratch.allocate(dresidual.dtype, dresidual.shape);
  Tensor dresult = dresidual;
  if (post_mlp_norm) {
    dresult = scratch.allocate(dresidual.dtype, dresidual.shape);
    post_mlp_norm.backward(own.pass(), dresult, dresidual, state.mlp_out, state.post_mlp_statistics, false);
  }
  {
    const Arena::Scope inner(scratch);
    const Tensor dout = all_rows(pass, dresult);
    BlockState all = with_all_rows(pass, state, &BlockState::mlp_normed);
    if (experts) {
      experts.backward(pass, dnormed, dout, all);
    } else {
      mlp.backward(pass, dnormed, dout, all);
    }
  }
  // In a parallel block, attention's backward reads dresidual too, so the MLP branch is added to it only afterwards.
  const Tensor dmlp_normed = dnormed;
  Tensor dattention_normed = dnormed;
  if (parallel) {
    dattention_normed = scratch.allocate(dresidual.dtype, dresidual.shape);
  } else {
    mlp_norm.backward(own.pass(), dresidual, dmlp_normed, state.middle, state.mlp_statistics, true);
  }
  if (post_attention_norm) {
    post_attention_norm.backward(own.pass(), dresult, dresidual, state.attention_out, state.post_attention_statistics,
                                 false);
  }
  const bool below = input_gradient || attention_norm.has_trainable();
  {
    const Arena::Scope inner(scratch);
    const Tensor dout = all_rows(pass, dresult);
    BlockState all = with_all_rows(pass, state, &BlockState::attention_normed);
    attention.backward(pass, below ? dattention_normed : Tensor{}, dout, all);
  }
  if (parallel) mlp_norm.backward(own.pass(), dresidual, dmlp_normed, state.input, state.mlp_statistics, true);
  if (below) {
    attention_norm.backward(own.pass(), dresidual, dattention_normed, state.input, state.attention_statistics, true);
  }
}

std::vector<Linear*> Block::linears() {
  std::vector<Linear*> all = attention.linears();
  for (const std::vector<Linear*>& more : {mlp.linears(), experts.linears()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  std::erase_if(all, [](const Linear* linear) { return !*linear; });
  return all;
}

std::vector<Norm*> Block::norms() {
  std::vector<Norm*> all = attention.norms();
  all.insert(all.end(), {&attention_norm, &post_attention_norm, &mlp_norm, &post_mlp_norm});
  std::erase_if(all, [](const Norm* norm) { return !*norm; });
  return all;
}

size_t Block::forward_bytes(const spec::LayerSpec& spec, int64_t hidden, const PassShape& shape) {
  const spec::Experts* experts = spec::experts_of(spec.mlp);
  const size_t mlp = experts ? Experts::forward_bytes(*experts, hidden, shape)
                             : Mlp::forward_bytes(spec::dense_of(spec.mlp), hidden, shape, shape.tokens);
  const size_t recomputed = spec.post_norms ? shape.matrix_bytes(shape.own_rows(shape.tokens), hidden) : 0;
  return recomputed + all_rows_bytes(shape.tokens, hidden, shape) +
         std::max(Attention::forward_bytes(spec.attention, hidden, shape), mlp);
}

size_t Block::backward_bytes(const spec::LayerSpec& spec, int64_t hidden, const PassShape& shape) {
  const size_t residual = shape.matrix_bytes(shape.own_rows(shape.tokens), hidden);
  const spec::Experts* experts = spec::experts_of(spec.mlp);
  const size_t mlp = experts ? Experts::backward_bytes(*experts, hidden, shape)
                             : Mlp::backward_bytes(spec::dense_of(spec.mlp), hidden, shape, shape.tokens);
  const size_t held = residual * (1 + (spec.parallel_residual ? 1 : 0) + (spec.post_norms ? 1 : 0));
  const size_t norm = Norm::bytes(shape.tokens, hidden);
  return held + 2 * all_rows_bytes(shape.tokens, hidden, shape) +
         std::max({Attention::backward_bytes(spec.attention, hidden, shape), mlp, norm});
}

}  // namespace ingot::nn
