#include "spec/sizes.h"

#include <algorithm>

namespace ingot::spec {

namespace {

// An arena's rounding; tensor/arena.h has the same number, and a test checks that the two are equal.
constexpr size_t alignment = 64;
size_t round_up(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

struct BlockBytes {
  size_t saved = 0;
  size_t recomputed = 0;
};

BlockBytes bytes_of(const ModelSpec& model, const LayerSpec& layer, Recompute recompute, int64_t activation_bytes,
                    int64_t tokens, int64_t row_ranks) {
  BlockBytes bytes;
  for (const SavedTensor& t : block_tensors(model, layer, activation_bytes, row_ranks)) {
    (is_saved(t, recompute) ? bytes.saved : bytes.recomputed) +=
        round_up(static_cast<size_t>(tokens / t.ranks * t.features * t.bytes));
  }
  return bytes;
}

}  // namespace

const char* name(Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    case Recompute::full: return "full";
  }
  return "?";
}

bool is_of_residual(Saved id) {
  switch (id) {
    case Saved::attention_normed:
    case Saved::attention_rstd:
    case Saved::attention_mean:
    case Saved::attention_out:
    case Saved::post_attention_rstd:
    case Saved::post_attention_mean:
    case Saved::middle:
    case Saved::mlp_normed:
    case Saved::mlp_rstd:
    case Saved::mlp_mean:
    case Saved::mlp_out:
    case Saved::post_mlp_rstd:
    case Saved::post_mlp_mean: return true;
    default: return false;
  }
}

std::vector<SavedTensor> block_tensors(const ModelSpec& model, const LayerSpec& layer, int64_t activation_bytes,
                                       int64_t row_ranks) {
  SavedList list(activation_bytes, model.norm == NormKind::layer);
  layer.add_saved(list, model.hidden);
  std::vector<SavedTensor> tensors = list.take();
  for (SavedTensor& t : tensors) t.ranks = is_of_residual(t.id) ? row_ranks : 1;
  return tensors;
}

bool is_saved(const SavedTensor& tensor, Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return true;
    case Recompute::selective: return !tensor.cheap;
    case Recompute::full: return false;
  }
  return true;
}

SavedBytes saved_bytes(const ModelSpec& model, Recompute recompute, int64_t activation_bytes, int64_t tokens,
                       int64_t layers, const ModelShard& shard) {
  const int64_t own = tokens / shard.row_ranks();
  const size_t residual = round_up(static_cast<size_t>(own * model.hidden * activation_bytes));
  const size_t statistics = (model.norm == NormKind::layer ? 2 : 1) * round_up(static_cast<size_t>(own) * 4);
  BlockBytes sum;
  BlockBytes one;
  for (int64_t layer = model.num_layers() - layers; layer < model.num_layers(); ++layer) {
    const bool same = layer > model.num_layers() - layers && model.layer(layer) == model.layer(layer - 1);
    if (!same) one = bytes_of(model, model.layer(layer), recompute, activation_bytes, tokens, shard.row_ranks());
    sum.saved += one.saved + residual;
    sum.recomputed = std::max(sum.recomputed, one.recomputed);
  }
  SavedBytes bytes{sum.saved, sum.recomputed};
  (shard.last() ? bytes.own : bytes.shared) += 2 * residual;  // after the last block, and its gradient
  if (shard.last()) bytes.own += residual + statistics;       // the final norm's output and statistics
  // The input, where it is not the residual before the first of these blocks.
  if (!shard.first() && layers < model.num_layers()) bytes.own += residual;
  return bytes;
}

size_t deferred_gradient_bytes(const ModelSpec& model, Recompute recompute, int64_t activation_bytes, int64_t tokens,
                               int64_t layers, const ModelShard& shard) {
  size_t bytes = 0;
  for (const ParamSpec& p : parameters(model)) {
    const bool deferred = p.linear || p.role == Role::router;
    if (!deferred || p.bias || p.expert >= 0 || p.layer < model.num_layers() - layers) continue;
    const auto matrix = [&](int64_t features) {
      return round_up(static_cast<size_t>(tokens * features * activation_bytes));
    };
    bytes += matrix(p.shape[0]);
    if (recompute != Recompute::none || shard.sequence_parallel) bytes += matrix(p.shape[1]);
  }
  return bytes;
}

int64_t loss_chunk(int64_t vocab, bool host_visible) {
  const int64_t elements = int64_t{1} << (host_visible ? 24 : 28);
  const int64_t rows = std::max<int64_t>(64, elements / vocab / 64 * 64);
  return host_visible ? std::min<int64_t>(1024, rows) : rows;
}

size_t kv_bytes(const ModelSpec& model, int64_t pages, int64_t page, int64_t element_bytes) {
  size_t total = 0;
  for (const LayerSpec& layer : model.layers) {
    const CacheEntry entry = layer.attention.cache_entry();
    for (const int64_t elements : {entry.keys, entry.values}) {
      total += round_up(static_cast<size_t>(pages * page * elements * element_bytes));
    }
  }
  return total;
}

int64_t cache_elements(const ModelSpec& model) {
  int64_t total = 0;
  for (const LayerSpec& layer : model.layers) {
    const CacheEntry entry = layer.attention.cache_entry();
    total += entry.keys + entry.values;
  }
  return total;
}

}  // namespace ingot::spec
