#include "spec/table.h"

namespace ingot::spec {

void TableBuilder::enter(int64_t layer, std::string hf_prefix, std::string gguf_prefix) {
  layer_ = layer;
  hf_ = std::move(hf_prefix);
  gguf_ = std::move(gguf_prefix);
}

ParamSpec& TableBuilder::add(Role role, Names names, bool bias, std::vector<int64_t> shape) {
  const char* suffix = bias ? ".bias" : ".weight";
  ParamSpec p;
  p.name = hf_ + names.hf + suffix;
  p.role = role;
  p.bias = bias;
  p.layer = layer_;
  p.shape = std::move(shape);
  p.gguf_name = gguf_ + names.gguf + suffix;
  return table_.emplace_back(std::move(p));
}

void TableBuilder::embedding(Role role, Names names, int64_t rows) {
  ParamSpec& p = add(role, names, false, {rows, model_.hidden});
  p.init_std = model_.initializer_range;
  p.decay = true;
  p.split = role == Role::embedding ? Split::rows : Split::none;
}

void TableBuilder::norm(Role role, Names names, int64_t features) {
  // With an offset of 1, a weight of 0 multiplies by 1.
  add(role, names, false, {features}).init = model_.norm_weight_offset == 0 ? Init::ones : Init::zeros;
  if (model_.norm_bias) add(role, names, true, {features}).init = Init::zeros;
}

void TableBuilder::linear(Role role, Names names, const LinearRow& row) {
  ParamSpec& p = add(role, names, false, {row.out, row.in});
  p.expert = row.expert;
  p.init_std = row.std > 0 ? row.std : model_.initializer_range;
  p.decay = true;
  p.split = row.split;
  p.linear = true;
  p.transposed = row.transposed;
  p.rope_heads = row.rope_heads;
  if (!row.bias) return;
  ParamSpec& bias = add(role, names, true, {row.out});
  bias.expert = row.expert;
  bias.init = Init::zeros;
  bias.split = row.split == Split::rows ? Split::rows : Split::none;
  bias.rope_heads = row.rope_heads;
}

}  // namespace ingot::spec
