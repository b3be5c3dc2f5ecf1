#include "nn/block_state.h"

#include "base/error.h"

namespace ingot::nn {

Tensor& BlockState::tensor_of(spec::Saved id) {
  using spec::Saved;
  switch (id) {
    case Saved::attention_normed: return attention_normed;
    case Saved::attention_rstd: return attention_statistics.rstd;
    case Saved::attention_mean: return attention_statistics.mean;
    case Saved::qkv: return qkv;
    case Saved::q_input: return q_input;
    case Saved::k_input: return k_input;
    case Saved::q_rstd: return q_statistics.rstd;
    case Saved::q_mean: return q_statistics.mean;
    case Saved::k_rstd: return k_statistics.rstd;
    case Saved::k_mean: return k_statistics.mean;
    case Saved::q: return q;
    case Saved::k: return k;
    case Saved::v: return v;
    case Saved::attention_context: return attention_context;
    case Saved::lse: return lse;
    case Saved::attention_out: return attention_out;
    case Saved::post_attention_rstd: return post_attention_statistics.rstd;
    case Saved::post_attention_mean: return post_attention_statistics.mean;
    case Saved::middle: return middle;
    case Saved::mlp_normed: return mlp_normed;
    case Saved::mlp_rstd: return mlp_statistics.rstd;
    case Saved::mlp_mean: return mlp_statistics.mean;
    case Saved::router: return router;
    case Saved::topk_ids: return topk_ids;
    case Saved::topk_weights: return topk_weights;
    case Saved::token_of_row: return token_of_row;
    case Saved::row_of_choice: return row_of_choice;
    case Saved::grouped: return grouped;
    case Saved::gate: return gate;
    case Saved::up: return up;
    case Saved::activated: return activated;
    case Saved::expert_out: return expert_out;
    case Saved::mlp_out: return mlp_out;
    case Saved::post_mlp_rstd: return post_mlp_statistics.rstd;
    case Saved::post_mlp_mean: return post_mlp_statistics.mean;
  }
  throw_error(ErrorKind::internal, "a block's state has no tensor {}", static_cast<int>(id));
}

void BlockState::allocate(Arena& arena, const std::vector<spec::SavedTensor>& list, DType activation, int64_t tokens,
                          spec::Recompute recompute, bool saved) {
  using Kind = spec::SavedTensor::Kind;
  for (const spec::SavedTensor& t : list) {
    if (spec::is_saved(t, recompute) != saved) continue;
    Tensor& tensor = tensor_of(t.id);
    const int64_t own = tokens / t.ranks;
    switch (t.kind) {
      case Kind::matrix: tensor = arena.allocate(activation, Shape{own * t.rows, t.features / t.rows}); break;
      case Kind::statistic: tensor = arena.allocate(DType::f32, Shape{own * t.features}); break;
      case Kind::by_feature: tensor = arena.allocate(DType::f32, Shape{t.features, tokens}); break;
      case Kind::real: tensor = arena.allocate(DType::f32, Shape{tokens, t.features}); break;
      case Kind::index: tensor = arena.allocate(DType::i32, Shape{tokens, t.features}); break;
    }
  }
}

size_t block_state_bytes(const std::vector<spec::SavedTensor>& list, int64_t tokens) {
  size_t total = 0;
  for (const spec::SavedTensor& t : list)
    total += Arena::footprint(static_cast<size_t>(tokens / t.ranks * t.features * t.bytes));
  return total;
}

}  // namespace ingot::nn
