#include "nn/block_state.h"

#include <string_view>
#include <utility>

#include "base/error.h"

namespace ingot::nn {

namespace {

Tensor& place_of(BlockState& state, std::string_view name) {
  const std::pair<std::string_view, Tensor*> places[] = {
      {"attention_normed", &state.attention_normed},
      {"attention_rstd", &state.attention_statistics.rstd},
      {"attention_mean", &state.attention_statistics.mean},
      {"qkv", &state.qkv},
      {"q_input", &state.q_input},
      {"k_input", &state.k_input},
      {"q_rstd", &state.q_statistics.rstd},
      {"q_mean", &state.q_statistics.mean},
      {"k_rstd", &state.k_statistics.rstd},
      {"k_mean", &state.k_statistics.mean},
      {"q", &state.q},
      {"k", &state.k},
      {"v", &state.v},
      {"attention_context", &state.attention_context},
      {"lse", &state.lse},
      {"attention_out", &state.attention_out},
      {"post_attention_rstd", &state.post_attention_statistics.rstd},
      {"post_attention_mean", &state.post_attention_statistics.mean},
      {"middle", &state.middle},
      {"mlp_normed", &state.mlp_normed},
      {"mlp_rstd", &state.mlp_statistics.rstd},
      {"mlp_mean", &state.mlp_statistics.mean},
      {"router", &state.router},
      {"chosen", &state.chosen},
      {"chosen_weight", &state.chosen_weight},
      {"grouped_token", &state.grouped_token},
      {"row_of_choice", &state.row_of_choice},
      {"grouped", &state.grouped},
      {"gate", &state.gate},
      {"up", &state.up},
      {"activated", &state.activated},
      {"expert_out", &state.expert_out},
      {"mlp_out", &state.mlp_out},
      {"post_mlp_rstd", &state.post_mlp_statistics.rstd},
      {"post_mlp_mean", &state.post_mlp_statistics.mean},
  };
  for (const auto& [known, place] : places) {
    if (known == name) return *place;
  }
  throw_error(ErrorKind::internal, "a block's state has no '{}'", name);
}

}  // namespace

void BlockState::take(Arena& arena, const spec::ModelSpec& model, DType activation, int64_t tokens,
                      spec::Recompute recompute, bool kept) {
  using Kind = spec::SavedTensor::Kind;
  for (const spec::SavedTensor& t : spec::block_tensors(model, static_cast<int64_t>(size_of(activation)))) {
    if (spec::is_kept(t.name, recompute) != kept) continue;
    Tensor& place = place_of(*this, t.name);
    switch (t.kind) {
      case Kind::matrix: place = arena.take(activation, Shape{tokens * t.rows, t.features / t.rows}); break;
      case Kind::statistic: place = arena.take(DType::f32, Shape{tokens * t.features}); break;
      case Kind::by_feature: place = arena.take(DType::f32, Shape{t.features, tokens}); break;
      case Kind::real: place = arena.take(DType::f32, Shape{tokens, t.features}); break;
      case Kind::index: place = arena.take(DType::i32, Shape{tokens, t.features}); break;
    }
  }
}

size_t block_state_bytes(const spec::ModelSpec& model, size_t activation_bytes, int64_t tokens) {
  size_t total = 0;
  for (const spec::SavedTensor& t : spec::block_tensors(model, static_cast<int64_t>(activation_bytes))) {
    total += Arena::footprint(static_cast<size_t>(tokens * t.features * t.bytes));
  }
  return total;
}

}  // namespace ingot::nn
