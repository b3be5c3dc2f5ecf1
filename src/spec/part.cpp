#include "spec/part.h"

#include "base/error.h"

namespace ingot::spec {

namespace {

// Share number `rank` of `shares` equal shares of [begin, begin + count).
Range share(int64_t begin, int64_t count, int64_t rank, int64_t shares) {
  const int64_t size = count / shares;
  return {begin + rank * size, begin + (rank + 1) * size};
}

// The rows that a rank holds of a parameter that is split by rows.
std::vector<Range> rows_of(const ModelSpec& model, const ParamSpec& p, const Part& part) {
  if (p.role != Role::qkv || model.qkv_by_head) return {share(0, p.shape[0], part.tp_rank, part.tp)};
  const int64_t queries = model.heads * model.head_dim;
  const int64_t keys = model.kv_heads * model.head_dim;
  return {share(0, queries, part.tp_rank, part.tp), share(queries, keys, part.tp_rank, part.tp),
          share(queries + keys, keys, part.tp_rank, part.tp)};
}

bool is_held(const ParamSpec& p, const Part& part, const Range& blocks) {
  switch (p.role) {
    case Role::embedding:
    case Role::position_embedding: return part.first();
    case Role::final_norm:
    case Role::head: return part.last();
    default: return p.layer >= blocks.begin && p.layer < blocks.end;
  }
}

}  // namespace

void check(const ModelSpec& model, const Part& part) {
  if (part.tp < 1 || part.pp < 1) {
    throw_error(ErrorKind::usage, "parallel.tp is {} and parallel.pp is {}; both must be at least 1", part.tp, part.pp);
  }
  const auto divides = [&](const char* what, int64_t count) {
    if (count % part.tp == 0) return;
    throw_hint(ErrorKind::usage, "choose a number that divides it",
               "parallel.tp is {}, which does not divide the model's {} {}", part.tp, count, what);
  };
  divides("attention heads", model.heads);
  divides("key/value heads", model.kv_heads);
  divides("MLP features", model.ffn);
  if (part.pp > model.layers) {
    throw_error(ErrorKind::usage, "parallel.pp is {}, but the model has {} blocks", part.pp, model.layers);
  }
  if (part.tp > 1 && model.qk_norm != QkNorm::none) {
    throw_error(ErrorKind::unsupported, "query and key norms are not supported with tensor parallelism yet");
  }
  if (part.pp > 1 && model.tied_head) {
    throw_error(ErrorKind::unsupported, "tied embeddings are not supported with pipeline parallelism yet");
  }
}

Range blocks_of(const ModelSpec& model, const Part& part) {
  const int64_t each = model.layers / part.pp;
  const int64_t more = model.layers % part.pp;  // stages with one block more
  const int64_t begin = part.stage * each + std::min(part.stage, more);
  return {begin, begin + each + (part.stage < more ? 1 : 0)};
}

ModelSpec sizes_of(const ModelSpec& model, const Part& part) {
  const Range blocks = blocks_of(model, part);
  ModelSpec sizes = model;
  sizes.heads /= part.tp;
  sizes.kv_heads /= part.tp;
  sizes.ffn /= part.tp;
  sizes.layers = blocks.end - blocks.begin;
  return sizes;
}

std::vector<HeldParameter> held_parameters(const ModelSpec& model, const Part& part) {
  check(model, part);
  const std::vector<ParamSpec> table = parameters(model);
  const Range blocks = blocks_of(model, part);
  std::vector<HeldParameter> list;
  for (size_t i = 0; i < table.size(); ++i) {
    const ParamSpec& p = table[i];
    if (!is_held(p, part, blocks)) continue;
    HeldParameter held{i, p, {{0, p.shape[0]}}, {0, p.shape.size() > 1 ? p.shape[1] : 1}};
    const bool in_block = p.layer >= 0;
    if (in_block && p.split == Split::rows) held.rows = rows_of(model, p, part);
    if (in_block && p.split == Split::columns) held.columns = share(0, p.shape[1], part.tp_rank, part.tp);
    held.held.shape[0] = 0;
    for (const Range& range : held.rows) held.held.shape[0] += range.end - range.begin;
    if (p.shape.size() > 1) held.held.shape[1] = held.columns.end - held.columns.begin;
    if (p.rope_heads > 0) held.held.rope_heads = p.rope_heads / part.tp;
    list.push_back(std::move(held));
  }
  return list;
}

}  // namespace ingot::spec
