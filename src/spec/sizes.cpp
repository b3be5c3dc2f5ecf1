#include "spec/sizes.h"

namespace ingot::spec {

namespace {

// An arena's rounding; tensor/arena.h has the same number and a test holds the two together.
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
  const int64_t q = model.heads * model.head_dim;
  const int64_t kv = model.kv_heads * model.head_dim;
  const int64_t a = activation_bytes;
  return {{"attention_normed", model.hidden, a},
          {"attention_rstd", 1, 4},
          {"q", q, a},
          {"k", kv, a},
          {"v", kv, a},
          {"attended", q, a},
          {"lse", model.heads, 4},
          {"middle", model.hidden, a},
          {"mlp_normed", model.hidden, a},
          {"mlp_rstd", 1, 4},
          {"gate", model.ffn, a},
          {"up", model.ffn, a},
          {"activated", model.ffn, a}};
}

bool is_kept(std::string_view tensor, Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return true;
    case Recompute::selective: return tensor != "attention_normed" && tensor != "mlp_normed" && tensor != "activated";
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
  const size_t statistics = round_up(static_cast<size_t>(tokens) * 4);
  // The residual stream before every block kept and after the last, the final norm's output and statistics.
  return static_cast<size_t>(layers) * (bytes_of(kept, tokens) + stream) + bytes_of(refilled, tokens) + 2 * stream +
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
