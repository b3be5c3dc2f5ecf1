#include "spec/model_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include "base/error.h"

namespace ingot::spec {

namespace {

// Share number `rank` of `shares` equal shares of [begin, begin + count).
Range share(int64_t begin, int64_t count, int64_t rank, int64_t shares) {
  const int64_t size = count / shares;
  return {begin + rank * size, begin + (rank + 1) * size};
}

// Of a parameter with rows of key/value heads, the ranks that have the same one.
int64_t copies_of(const ParamSpec& p, const ModelShard& shard) {
  return p.kv_heads > 0 ? std::max<int64_t>(1, shard.tp / p.kv_heads) : 1;
}

// Sets what a rank holds of a parameter that is split by rows.
void split_rows(HeldParameter& held, const ParamSpec& p, const ModelShard& shard) {
  const int64_t copies = copies_of(p, shard);
  std::vector<int64_t> groups = p.row_groups;
  if (groups.empty()) groups = {p.shape[0]};
  held.slice.rows.clear();
  held.copied = {0, copies};
  int64_t begin = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool queries = i == 0 && groups.size() > 1;
    const int64_t ranks = queries ? 1 : copies;  // with the same rows
    held.slice.rows.push_back(share(begin, groups[i], shard.tp_rank / ranks, shard.tp / ranks));
    if (!p.row_groups.empty()) held.held.row_groups[i] = held.slice.rows.back().count();
    if (queries) held.copied.begin = held.slice.rows.back().count();
    begin += groups[i];
  }
}

Slice whole_slice_of(const ParamSpec& p) { return whole_slice(p.shape[0], p.shape.size() > 1 ? p.shape[1] : 1); }

// Of which a rank's gradient is that of its heads, for queries or keys, or of its rows.
bool is_norm_in_parts(const ParamSpec& p, const ModelShard& shard) {
  switch (p.role) {
    case Role::q_norm:
    case Role::k_norm: return true;
    case Role::attention_norm:
    case Role::post_attention_norm:
    case Role::mlp_norm:
    case Role::post_mlp_norm:
    case Role::final_norm: return shard.sequence_parallel;
    default: return false;
  }
}

bool is_cut_by_vocabulary(const ParamSpec& p) { return p.role == Role::embedding || p.role == Role::head; }

bool is_copy(const ModelSpec& model, const ParamSpec& p, const ModelShard& shard) {
  return model.tied_head && p.role == Role::embedding && shard.last() && !shard.first();
}

// The weights by which a token is multiplied in an MLP.
double used_weights(const Dense& mlp, int64_t hidden) {
  return static_cast<double>((mlp.gated ? 3 : 2) * mlp.features * hidden);
}
double used_weights(const Experts& mlp, int64_t hidden) {
  return static_cast<double>(mlp.count * hidden) +
         static_cast<double>(mlp.per_token) * used_weights(mlp.expert, hidden);
}
double used_weights(const LayerSpec& layer, int64_t hidden) {
  const Attention& attention = layer.attention;
  return static_cast<double>(2 * (attention.query_width() + attention.key_width()) * hidden) +
         std::visit([&](const auto& mlp) { return used_weights(mlp, hidden); }, layer.mlp);
}

// The last stage has the head besides its blocks, so it has fewer of them where that shortens the longest stage.
int64_t blocks_of_last_stage(const ModelSpec& model, int64_t stages) {
  const int64_t blocks = model.num_layers();
  if (stages == 1) return blocks;
  double all = 0;
  for (const LayerSpec& layer : model.layers) all += used_weights(layer, model.hidden);
  // In blocks; those of a model that differ are taken as their mean.
  const double head = static_cast<double>(model.vocab * model.hidden) * static_cast<double>(blocks) / all;
  const auto longest = [&](int64_t last) {
    const int64_t others = (blocks - last + stages - 2) / (stages - 1);
    return std::max(static_cast<double>(others), static_cast<double>(last) + head);
  };
  int64_t best = blocks / stages;
  for (int64_t last = best - 1; last >= 1; --last) {
    if (longest(last) < longest(best)) best = last;
  }
  return best;
}

// Why the model's layers cannot be divided into so many parts.
std::optional<Error> split_error(const ModelSpec& model, Parts parts) {
  try {
    for (const LayerSpec& layer : model.layers) layer.check_split(parts);
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

// The numbers of ranks below and above `tp` that can.
std::string nearest_tp(const ModelSpec& model, int64_t tp) {
  int64_t below = tp - 1, above = tp + 1, most = 1;
  for (const LayerSpec& layer : model.layers) most = std::max(most, layer.attention.heads);
  while (below > 1 && split_error(model, {below})) --below;
  while (above <= most && split_error(model, {above})) ++above;
  return above <= most ? fmt::format("use tp {} or {}, or divide the model by pp", below, above)
                       : fmt::format("use tp {}, or divide the model by pp", below);
}

// `blocks`: of the shard.
bool is_held(const ModelSpec& model, const ParamSpec& p, const ModelShard& shard, const Range& blocks) {
  if (shard.divides(p)) {
    const int64_t each = experts_of(model.layer(p.layer).mlp)->count / shard.ep;
    if (p.expert / each != shard.ep_rank) return false;
  }
  if (p.layer < 0) return p.after_blocks ? shard.last() : shard.first();
  return p.layer >= blocks.begin && p.layer < blocks.end;
}

// Whether expert-parallel ranks can divide every mixture.
void check_experts(const ModelSpec& model, int64_t ranks) {
  if (ranks == 1) return;
  int64_t common = 0;  // divisor of the numbers of experts
  for (const LayerSpec& layer : model.layers) {
    const Experts* experts = experts_of(layer.mlp);
    if (experts == nullptr) continue;
    common = std::gcd(common, experts->count);
    if (layer.post_norms) {
      throw_hint(ErrorKind::unsupported, "remove ep",
                 "ep {}: the model normalises its experts' results, and a block's experts have to be the last of its "
                 "parameters",
                 ranks);
    }
  }
  if (common == 0) throw_hint(ErrorKind::usage, "remove ep", "ep is {}, but the model has no experts", ranks);
  if (common % ranks == 0) return;
  std::string list;
  for (int64_t each = 1; each <= common; ++each) {
    if (common % each == 0) list += fmt::format("{}{}", list.empty() ? "" : ", ", each);
  }
  throw_hint(ErrorKind::usage, fmt::format("use one of {}", list), "{} experts cannot be divided among ep {} ranks",
             common, ranks);
}

}  // namespace

void check(const ModelSpec& model, const ModelShard& shard) {
  if (shard.tp < 1 || shard.pp < 1) {
    throw_error(ErrorKind::usage, "tp is {} and pp is {}; both must be at least 1", shard.tp, shard.pp);
  }
  if (shard.tp > model.vocab) {
    throw_error(ErrorKind::usage, "tp is {}, more than the vocabulary's {} tokens", shard.tp, model.vocab);
  }
  if (const std::optional<Error> error = split_error(model, {shard.tp}))
    throw Error(error->kind(), error->message(), nearest_tp(model, shard.tp));
  check_experts(model, shard.ep);
  if (shard.pp > model.num_layers()) {
    throw_hint(ErrorKind::usage, "lower pp, or chunks", "the model has {} blocks, fewer than pp x chunks, {}",
               model.num_layers(), shard.pp);
  }
}

void check_context_parallel(const ModelSpec& model, const ContextParallel& cp) {
  const int64_t parts = context_parts(cp.type, cp.ranks);
  if (cp.sequence_length % parts != 0) {
    throw_hint(ErrorKind::usage, fmt::format("use a multiple of {}", parts),
               "the sequence length of {} cannot be divided among {} context-parallel ranks{}", cp.sequence_length,
               cp.ranks, parts > cp.ranks ? ", with two chunks each" : "");
  }
  if (cp.type != CpCommType::a2a) return;
  const auto heads_of = [&](const Attention& attention) {
    const Attention part = attention.split(cp.tp);
    return std::pair(part.heads, part.kv_heads);
  };
  const auto can = [&](int64_t ranks) {
    return std::ranges::all_of(model.layers, [&](const LayerSpec& layer) {
      const auto [heads, kv_heads] = heads_of(layer.attention);
      return heads % ranks == 0 && (kv_heads % ranks == 0 || (!cp.bitwise && ranks % kv_heads == 0));
    });
  };
  if (can(cp.ranks)) return;
  const auto [heads, kv_heads] = heads_of(model.layers.front().attention);
  std::string list;
  for (int64_t ranks = 1; ranks <= heads; ++ranks) {
    if (can(ranks)) list += fmt::format("{}{}", list.empty() ? "" : ", ", ranks);
  }
  const std::string other = cp.bitwise ? "" : ", or cp_comm_type: p2p or allgather, which divide no heads";
  throw_hint(ErrorKind::usage, fmt::format("use one of {}{}", list, other),
             "{} context-parallel ranks cannot share the {} heads and {} key/value heads that each of {} "
             "tensor-parallel ranks has{}",
             cp.ranks, heads, kv_heads, cp.tp, cp.bitwise ? ", with the same bits" : "");
}

void check_sum_slices(const ModelSpec& model, int64_t slices) {
  constexpr const char* setting = "parallel.units";
  if (slices == 1) return;
  if (slices > model.vocab)
    throw_error(ErrorKind::usage, "{} is {}, more than the vocabulary's {} tokens", setting, slices, model.vocab);
  const auto error_of = [&](int64_t count) { return split_error(model, {count, setting, false}); };
  const std::optional<Error> error = error_of(slices);
  if (!error) return;
  int64_t below = slices / 2;
  while (below > 1 && error_of(below)) below /= 2;
  throw Error(error->kind(), error->message(),
              below > 1 ? fmt::format("set {} to {}", setting, below) : fmt::format("remove {}", setting));
}

int64_t HeldPart::counted_elements(const ModelShard& shard) const {
  if (placement != TensorPlacement::sharded) return shard.tp_rank == 0 ? slice.elements() : 0;
  return shard.tp_rank % copied.ranks == 0 ? slice.elements() : copied.begin * slice.columns.count();
}

Range blocks_of(const ModelSpec& model, const ModelShard& shard) {
  const int64_t last = blocks_of_last_stage(model, shard.pp), blocks = model.num_layers();
  if (shard.last()) return {blocks - last, blocks};
  const int64_t each = (blocks - last) / (shard.pp - 1);
  const int64_t more = (blocks - last) % (shard.pp - 1);  // stages with one block more
  const int64_t begin = shard.stage * each + std::min(shard.stage, more);
  return {begin, begin + each + (shard.stage < more ? 1 : 0)};
}

Range vocabulary_of(const ModelSpec& model, const ModelShard& shard) {
  return {model.vocab * shard.tp_rank / shard.tp, model.vocab * (shard.tp_rank + 1) / shard.tp};
}

ModelSpec sizes_of(const ModelSpec& model, const ModelShard& shard) {
  const Range blocks = blocks_of(model, shard);
  ModelSpec sizes = model;
  sizes.layers.clear();
  for (int64_t layer = blocks.begin; layer < blocks.end; ++layer) {
    LayerSpec& part = sizes.layers.emplace_back(model.layer(layer).split(shard.tp));
    if (auto* experts = std::get_if<Experts>(&part.mlp)) experts->ranks = shard.ep;
  }
  return sizes;
}

bool holds(const ModelSpec& model, const ModelShard& shard, const ParamSpec& p) {
  return is_held(model, p, shard, blocks_of(model, shard)) || is_copy(model, p, shard);
}

std::vector<HeldParameter> held_parameters(const ModelSpec& model, const ModelShard& shard) {
  check(model, shard);
  const std::vector<ParamSpec> table = parameters(model);
  const Range blocks = blocks_of(model, shard);
  std::vector<HeldParameter> list;
  for (size_t i = 0; i < table.size(); ++i) {
    const ParamSpec& p = table[i];
    const bool copy = is_copy(model, p, shard);
    if (!copy && !is_held(model, p, shard, blocks)) continue;
    HeldParameter held;
    held.whole = i;
    held.held = p;
    held.divided = shard.divides(p);
    held.slice = whole_slice_of(p);
    held.copy = copy;
    if (shard.tp > 1 && is_cut_by_vocabulary(p)) {
      held.slice.rows = {vocabulary_of(model, shard)};
      held.placement = TensorPlacement::sharded;
    } else if (shard.tp > 1) {
      if (p.split == Split::rows) split_rows(held, p, shard);
      if (p.split == Split::columns) held.slice.columns = share(0, p.shape[1], shard.tp_rank, shard.tp);
      held.placement = p.split != Split::none       ? TensorPlacement::sharded
                       : is_norm_in_parts(p, shard) ? TensorPlacement::partial
                                                    : TensorPlacement::replicated;
    }
    held.held.shape[0] = held.slice.num_rows();
    if (p.shape.size() > 1) held.held.shape[1] = held.slice.columns.count();
    held.held.rope_heads = p.rope_heads * copies_of(p, shard) / shard.tp;
    held.held.kv_heads = p.kv_heads * copies_of(p, shard) / shard.tp;
    held.held.fused_heads = p.fused_heads / shard.tp;
    list.push_back(std::move(held));
  }
  return list;
}

std::vector<HeldParameter> held_parameters(const ModelSpec& model, std::span<const ModelShard> shards) {
  std::map<size_t, HeldParameter> held;
  for (const ModelShard& shard : shards) {
    for (HeldParameter& p : held_parameters(model, shard)) {
      const auto [place, added] = held.try_emplace(p.whole, p);
      if (!added) place->second.copy = place->second.copy && p.copy;
    }
  }
  std::vector<HeldParameter> list;
  for (auto& [whole, p] : held) list.push_back(std::move(p));
  return list;
}

HeldAdapter held_adapter(const LoraParam& adapter, const HeldParameter& base) {
  const auto [module, index, rank, in, out] = adapter;
  HeldAdapter held{.adapter = adapter, .a = {}, .b = {}};
  held.a.whole = {rank, in};
  held.a.slice = {{{0, rank}}, base.slice.columns};
  held.b.whole = {out, rank};
  held.b.slice = {base.slice.rows, {0, rank}};
  held.b.copied = base.copied;
  if (base.placement != TensorPlacement::sharded) return held;
  const bool outputs = base.held.split == Split::rows;
  held.a.placement = outputs ? TensorPlacement::partial : TensorPlacement::sharded;
  held.b.placement = outputs ? TensorPlacement::sharded : TensorPlacement::partial;
  return held;
}

int64_t first_trainable_stage(const ModelSpec& model, int64_t virtual_stages, int64_t lowest_layer) {
  ModelShard shard{.pp = virtual_stages};
  while (!shard.last() && blocks_of(model, shard).end <= lowest_layer) ++shard.stage;
  return shard.stage;
}

BackwardEnd backward_end(const ModelSpec& model, const ModelShard& shard, int64_t lowest_layer) {
  const bool input_gradient = shard.stage > first_trainable_stage(model, shard.pp, lowest_layer);
  const Range blocks = blocks_of(model, shard);
  if (input_gradient) return {0, true};
  return {std::clamp(lowest_layer - blocks.begin, int64_t{0}, blocks.end - blocks.begin), false};
}

}  // namespace ingot::spec
