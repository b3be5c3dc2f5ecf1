#include "spec/table.h"

#include <fmt/format.h>

#include <cmath>

namespace ingot::spec {

void TableBuilder::enter_block(int64_t layer) {
  layer_ = layer;
  hf_ = fmt::format(fmt::runtime(family_.block), layer);
  gguf_ = fmt::format("blk.{}.", layer);
}

void TableBuilder::leave_blocks() {
  layer_ = -1;
  after_blocks_ = true;
  hf_.clear();
  gguf_.clear();
}

ParamSpec& TableBuilder::add(Role role, bool bias, std::vector<int64_t> shape, int64_t expert) {
  const char* suffix = bias ? ".bias" : ".weight";
  ParamSpec p;
  p.name = hf_ + fmt::format(fmt::runtime(family_.name_of(role)), expert) + suffix;
  p.role = role;
  p.bias = bias;
  p.layer = layer_;
  p.after_blocks = after_blocks_;
  p.expert = expert;
  p.shape = std::move(shape);
  p.gguf_name = gguf_ + gguf_name(role) + suffix;
  return table_.emplace_back(std::move(p));
}

void TableBuilder::embedding(Role role, int64_t rows) {
  ParamSpec& p = add(role, false, {rows, model_.hidden});
  p.init_std = model_.initializer_range;
  p.decay = true;
  p.split = role == Role::embedding ? Split::rows : Split::none;
  p.precise = role == Role::position_embedding;
}

void TableBuilder::norm(Role role, int64_t features) {
  ParamSpec& p = add(role, false, {features});
  // With an offset of 1, a weight of 0 multiplies by 1.
  p.init = model_.norm_weight_offset == 0 ? Init::ones : Init::zeros;
  p.norm = true;
  if (model_.norm_bias) add(role, true, {features}).init = Init::zeros;
}

void TableBuilder::linear(Role role, const LinearRow& row) {
  const auto shared_of = [&](ParamSpec& p) {
    p.rope_heads = family_.interleaved_rope ? row.rope_heads : 0;
    p.kv_heads = row.kv_heads;
    p.fused_heads = row.fused_heads;
    p.row_groups = row.row_groups;
    p.used = row.used;
  };
  ParamSpec& p = add(role, false, {row.out, row.in}, row.expert);
  p.init_std = model_.initializer_range;
  if (row.residual && family_.small_residual_init) {
    p.init_std /= std::sqrt(2.0 * static_cast<double>(model_.layers.size()));
  }
  p.decay = true;
  p.split = row.split;
  p.linear = true;
  p.precise = row.precise;
  p.transposed = family_.transposed && layer_ >= 0;
  shared_of(p);
  if (!row.bias) return;
  ParamSpec& bias = add(role, true, {row.out}, row.expert);
  bias.init = Init::zeros;
  bias.split = row.split == Split::rows ? Split::rows : Split::none;
  shared_of(bias);
}

}  // namespace ingot::spec
