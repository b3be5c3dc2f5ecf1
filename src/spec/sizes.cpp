#include "spec/sizes.h"

namespace ingot::spec {

namespace {

// An arena's rounding; tensor/arena.h has the same number, and a test checks that the two are equal.
constexpr size_t alignment = 64;
size_t round_up(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

size_t bytes_of(const std::vector<SavedTensor>& list, int64_t tokens) {
  size_t total = 0;
  for (const SavedTensor& t : list) total += round_up(static_cast<size_t>(tokens * t.features * t.bytes));
  return total;
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

std::vector<SavedTensor> block_tensors(const ModelSpec& model, int64_t activation_bytes) {
  using Kind = SavedTensor::Kind;
  const int64_t q = model.heads * model.head_dim;
  const int64_t kv = model.kv_heads * model.head_dim;
  std::vector<SavedTensor> list;
  const auto matrix = [&](const char* name, int64_t features, int64_t rows = 1) {
    list.push_back({name, rows * features, activation_bytes, Kind::matrix, rows});
  };
  const auto statistics = [&](const char* rstd, const char* mean, int64_t rows = 1) {
    list.push_back({rstd, rows, 4, Kind::statistic});
    if (model.norm == NormKind::layer) list.push_back({mean, rows, 4, Kind::statistic});
  };
  matrix("attention_normed", model.hidden);
  statistics("attention_rstd", "attention_mean");
  if (model.clip_qkv > 0) matrix("qkv", q + 2 * kv);
  if (model.qk_norm != QkNorm::none) {
    const bool by_head = model.qk_norm == QkNorm::head;
    matrix("q_input", q);
    matrix("k_input", kv);
    statistics("q_rstd", "q_mean", by_head ? model.heads : 1);
    statistics("k_rstd", "k_mean", by_head ? model.kv_heads : 1);
  }
  matrix("q", q);
  matrix("k", kv);
  matrix("v", kv);
  matrix("attention_context", q);
  list.push_back({"lse", model.heads, 4, Kind::by_feature});
  if (model.post_norms) {
    matrix("attention_out", model.hidden);
    statistics("post_attention_rstd", "post_attention_mean");
  }
  if (!model.parallel_residual) matrix("middle", model.hidden);
  matrix("mlp_normed", model.hidden);
  statistics("mlp_rstd", "mlp_mean");
  int64_t rows = 1;
  if (model.experts > 0) {
    rows = model.experts_per_token;
    matrix("router", model.experts);
    list.push_back({"chosen", rows, 4, Kind::index});
    list.push_back({"chosen_weight", rows, 4, Kind::real});
    list.push_back({"grouped_token", rows, 4, Kind::index});
    list.push_back({"row_of_choice", rows, 4, Kind::index});
    matrix("grouped", model.hidden, rows);
  }
  if (model.gated_mlp) matrix("gate", model.ffn, rows);
  matrix("up", model.ffn, rows);
  matrix("activated", model.ffn, rows);
  if (model.experts > 0) matrix("expert_out", model.hidden, rows);
  if (model.post_norms) {
    matrix("mlp_out", model.hidden);
    statistics("post_mlp_rstd", "post_mlp_mean");
  }
  return list;
}

bool is_kept(std::string_view tensor, Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return true;
    case Recompute::selective:
      return tensor != "attention_normed" && tensor != "mlp_normed" && tensor != "activated" && tensor != "grouped";
    case Recompute::full: return false;
  }
  return true;
}

size_t saved_bytes(const ModelSpec& model, Recompute recompute, int64_t activation_bytes, int64_t tokens,
                   int64_t layers) {
  std::vector<SavedTensor> kept;
  std::vector<SavedTensor> refilled;
  for (const SavedTensor& t : block_tensors(model, activation_bytes)) {
    (is_kept(t.name, recompute) ? kept : refilled).push_back(t);
  }
  const size_t stream = round_up(static_cast<size_t>(tokens * model.hidden * activation_bytes));
  const size_t statistics = (model.norm == NormKind::layer ? 2 : 1) * round_up(static_cast<size_t>(tokens) * 4);
  // The residual before every block and after the last, the latter's gradient, and the final norm's output and
  // statistics.
  return static_cast<size_t>(layers) * (bytes_of(kept, tokens) + stream) + bytes_of(refilled, tokens) + 3 * stream +
         statistics;
}

int64_t loss_chunk(int64_t vocab) {
  const int64_t elements = int64_t{1} << 24;
  const int64_t rows = elements / vocab / 64 * 64;
  return rows < 64 ? 64 : rows > 1024 ? 1024 : rows;
}

size_t kv_bytes(const ModelSpec& model, int64_t pages, int64_t page, int64_t element_bytes) {
  const size_t one = round_up(static_cast<size_t>(pages * page * model.kv_heads * model.head_dim * element_bytes));
  return static_cast<size_t>(model.layers) * 2 * one;
}

}  // namespace ingot::spec
