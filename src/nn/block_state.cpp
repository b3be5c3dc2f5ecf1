#include "nn/block_state.h"

#include <array>
#include <utility>

namespace ingot::nn {

void BlockState::take(Arena& arena, const spec::ModelSpec& model, DType activation, int64_t tokens,
                      spec::Recompute recompute, bool kept) {
  const std::array<std::pair<std::string_view, Tensor*>, 13> places = {{{"attention_normed", &attention_normed},
                                                                        {"attention_rstd", &attention_rstd},
                                                                        {"q", &q},
                                                                        {"k", &k},
                                                                        {"v", &v},
                                                                        {"attended", &attended},
                                                                        {"lse", &lse},
                                                                        {"middle", &middle},
                                                                        {"mlp_normed", &mlp_normed},
                                                                        {"mlp_rstd", &mlp_rstd},
                                                                        {"gate", &gate},
                                                                        {"up", &up},
                                                                        {"activated", &activated}}};
  for (const spec::SavedTensor& t : spec::block_tensors(model, static_cast<int64_t>(size_of(activation)))) {
    if (spec::is_kept(t.name, recompute) != kept) continue;
    const bool statistic = std::string_view(t.name) == "lse" || std::string_view(t.name).ends_with("rstd");
    for (const auto& [name, place] : places) {
      if (name != t.name) continue;
      const Shape shape = name == "lse" ? Shape{t.features, tokens}
                          : statistic   ? Shape{tokens}
                                        : Shape{tokens, t.features};
      *place = arena.take(statistic ? DType::f32 : activation, shape);
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
