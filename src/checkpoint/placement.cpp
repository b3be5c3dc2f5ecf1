#include "checkpoint/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "spec/family.h"

namespace ingot::checkpoint {

namespace {

// Placement of the matrix [out, in] of expert p.expert in a tensor that stacks all experts. Where the tensor fuses
// `parts` matrices of an expert along the rows (gate and up), it is number `part` of them.
Placement among_experts(const spec::ModelSpec& model, const spec::ParamSpec& p, std::string name, int64_t part,
                        int64_t parts) {
  const spec::Experts& experts = std::get<spec::Experts>(model.layer(p.layer).mlp);
  const int64_t rows = p.shape[0];
  Placement placement;
  placement.name = std::move(name);
  placement.shape = {experts.count, parts * rows, p.shape[1]};
  placement.first_row = (p.expert * parts + part) * rows;
  return placement;
}

}  // namespace

int64_t file_row(const Placement& placement, int64_t rows, int64_t row) {
  switch (placement.order) {
    case RowOrder::same: return row;
    case RowOrder::interleaved: {
      const int64_t head_rows = rows / placement.heads;
      const int64_t head = row / head_rows;
      const int64_t i = row % head_rows;
      const int64_t half = head_rows / 2;
      return head * head_rows + (i < half ? 2 * i : 2 * (i - half) + 1);
    }
    case RowOrder::by_part: {
      const int64_t head_rows = rows / (3 * placement.heads);
      const int64_t head = row / (3 * head_rows);
      const int64_t part = row / head_rows % 3;
      return (part * placement.heads + head) * head_rows + row % head_rows;
    }
  }
  return row;
}

int64_t memory_row(const Placement& placement, int64_t rows, int64_t row) {
  switch (placement.order) {
    case RowOrder::same: return row;
    case RowOrder::interleaved: {
      const int64_t head_rows = rows / placement.heads;
      const int64_t head = row / head_rows;
      const int64_t i = row % head_rows;
      return head * head_rows + (i % 2 == 0 ? i / 2 : head_rows / 2 + i / 2);
    }
    case RowOrder::by_part: {
      const int64_t head_rows = rows / (3 * placement.heads);
      const int64_t part = row / (placement.heads * head_rows);
      const int64_t head = row / head_rows % placement.heads;
      return (head * 3 + part) * head_rows + row % head_rows;
    }
  }
  return row;
}

std::vector<Placement> hf_placements(const spec::ModelSpec& model, const spec::ParamSpec& p) {
  Placement first;
  first.name = p.name;
  first.shape = p.shape;
  first.transposed = p.transposed && p.shape.size() == 2;
  if (first.transposed) std::swap(first.shape[0], first.shape[1]);
  std::vector<Placement> placements = {first};
  if (p.role != spec::Role::head) {
    Placement bare = first;
    bare.name = p.name.substr(p.name.find('.') + 1);
    placements.push_back(bare);
  }
  if (p.expert >= 0) {
    const std::string block = fmt::format("model.layers.{}.mlp.experts.", p.layer);
    placements.push_back(p.role == spec::Role::expert_down ? among_experts(model, p, block + "down_proj", 0, 1)
                                                           : among_experts(model, p, block + "gate_up_proj",
                                                                           p.role == spec::Role::expert_up ? 1 : 0, 2));
  }
  if (p.role == spec::Role::router) {
    Placement renamed = first;
    renamed.name = fmt::format("model.layers.{}.mlp.gate.weight", p.layer);
    placements.push_back(renamed);
  }
  return placements;
}

std::vector<Placement> gguf_placements(const spec::ModelSpec& model, const spec::ParamSpec& p) {
  Placement first;
  first.name = p.gguf_name;
  first.shape = p.shape;
  if (p.rope_heads > 0) {
    first.order = RowOrder::interleaved;
    first.heads = p.rope_heads;
  } else if (p.fused_heads > 0) {
    first.order = RowOrder::by_part;
    first.heads = p.fused_heads;
  }
  if (p.norm) first.offset = model.norm_weight_offset;
  if (p.expert < 0) return {first};
  // "blk.0.ffn_gate_exps.weight": the experts of a block, concatenated.
  Placement alone = first;
  const std::string word = p.gguf_name.substr(0, p.gguf_name.rfind("_exps"));
  alone.name = fmt::format("{}.{}.weight", word, p.expert);
  return {among_experts(model, p, p.gguf_name, 0, 1), alone};
}

bool is_ignorable(const std::string& name, const spec::ModelSpec& model, bool gguf) {
  if (gguf) return name == "rope_freqs.weight";  // Rope::scaling has the same information
  const auto ends = [&](const char* suffix) { return name.ends_with(suffix); };
  if (model.tied_head && (name == "lm_head.weight" || name == "embed_out.weight")) return true;
  if (ends("rotary_emb.inv_freq")) return true;
  const std::span<const std::string_view> buffers = spec::family_named(model.family).buffers;
  return std::any_of(buffers.begin(), buffers.end(), [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace ingot::checkpoint
