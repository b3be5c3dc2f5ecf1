#include "spec/layer.h"

#include "spec/limits.h"
#include "spec/table.h"

namespace ingot::spec {

void LayerSpec::check() const {
  attention.check();
  std::visit([](const auto& variant) { variant.check(); }, mlp);
  check_together(parallel_residual && post_norms, "attention parallel to the MLP", "norms after them");
}

void LayerSpec::add_parameters(TableBuilder& table) const {
  const int64_t hidden = table.hidden();
  const bool early = table.family().mlp_norm_first;
  table.norm(Role::attention_norm, hidden);
  if (early) table.norm(Role::mlp_norm, hidden);
  attention.add_parameters(table);
  if (post_norms) table.norm(Role::post_attention_norm, hidden);
  if (!early) table.norm(Role::mlp_norm, hidden);
  std::visit([&](const auto& variant) { variant.add_parameters(table); }, mlp);
  if (post_norms) table.norm(Role::post_mlp_norm, hidden);
}

void LayerSpec::add_saved(SavedList& list, int64_t hidden) const {
  list.cheap_matrix(Saved::attention_normed, hidden);
  list.statistics(Saved::attention_rstd, Saved::attention_mean);
  attention.add_saved(list);
  if (post_norms) {
    list.matrix(Saved::attention_out, hidden);
    list.statistics(Saved::post_attention_rstd, Saved::post_attention_mean);
  }
  if (!parallel_residual) list.matrix(Saved::middle, hidden);
  list.cheap_matrix(Saved::mlp_normed, hidden);
  list.statistics(Saved::mlp_rstd, Saved::mlp_mean);
  std::visit([&](const auto& variant) { variant.add_saved(list, hidden); }, mlp);
  if (post_norms) {
    list.matrix(Saved::mlp_out, hidden);
    list.statistics(Saved::post_mlp_rstd, Saved::post_mlp_mean);
  }
}

void LayerSpec::check_split(Parts parts) const {
  attention.check_split(parts);
  std::visit([&](const auto& variant) { variant.check_split(parts); }, mlp);
}

LayerSpec LayerSpec::split(int64_t tp) const {
  LayerSpec part = *this;
  part.attention = attention.split(tp);
  part.mlp = std::visit([&](const auto& variant) -> Mlp { return variant.split(tp); }, mlp);
  return part;
}

}  // namespace ingot::spec
