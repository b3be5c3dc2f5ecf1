#include "ops/lora.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/grouped_rows.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/lora.h"
#include "backend/cpu/workspace.h"

namespace ingot::cpu {
namespace {

// The entry of row t; null if it has no adapter.
const ops::LoraEntry* entry_of(const Tensor& entries, const Tensor& slots, int64_t t, ops::LoraAttributes attributes) {
  const int32_t slot = slots.as<int32_t>()[t];
  if (slot < 0) return nullptr;
  const auto* all = reinterpret_cast<const ops::LoraEntry*>(entries.as<int64_t>());
  const ops::LoraEntry* entry = all + slot * entries.shape[1] + attributes.layer;
  return entry->rank > 0 ? entry : nullptr;
}

// Bytes of the workspace for `count` vectors of `rank` floats: columns of B, or rows of x A^T.
size_t vectors_bytes(int64_t count, int64_t rank) {
  return WorkspaceArrays::footprint(static_cast<size_t>(count * rank) * sizeof(float));
}

bool declines(const ops::Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
              ops::LoraAttributes attributes, ops::Refusal refuse) {
  constexpr int64_t max_lanes = 16;
  return vectors_bytes(max_lanes, attributes.rank) + vectors_bytes(1, attributes.rank) > thread_workspace &&
         refuse("the rank's columns do not fit into the workspace");  // ranks over 61,000
}

// Processes rows [lo, hi). Consecutive rows with the same slot are processed together, as many as the workspace holds,
// so the adapter's matrices are read once for all of them.
template <class T, const LoraKernels& K>
void add_terms(const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots, int64_t lo, int64_t hi,
               ops::LoraAttributes attributes, std::span<std::byte> workspace) {
  const int64_t in = x.shape[1], out = y.shape[1];
  WorkspaceArrays arrays(workspace);
  auto* columns = arrays.take<float>(K.lanes * attributes.rank);
  const size_t fitting =
      (workspace.size() - vectors_bytes(K.lanes, attributes.rank)) / vectors_bytes(1, attributes.rank);
  const int64_t max_tokens = std::clamp<int64_t>(static_cast<int64_t>(fitting), 1, hi - lo);
  auto* low = arrays.take<float>(max_tokens * attributes.rank);
  const int32_t* slot = slots.as<int32_t>();
  for (int64_t begin = lo, end = lo; begin < hi; begin = end) {
    while (end < hi && end - begin < max_tokens && slot[end] == slot[begin]) ++end;
    const ops::LoraEntry* entry = entry_of(entries, slots, begin, attributes);
    if (entry == nullptr) continue;
    const int64_t tokens = end - begin, rank = entry->rank;
    // Interleaved, since these few rows stay in the caches.
    of_type<T>(K.down->skinny_gemm)(low, nullptr, rank, elements<T>(x) + begin * in, static_cast<const T*>(entry->a),
                                    tokens, rank, in, false, RowOrder::interleaved);
    for (int64_t i = 0; i < tokens * rank; ++i) low[i] *= entry->factor;
    const int64_t first = begin * out;
    const bool wide = y.dtype == DType::f32;
    of_type<T>(K.up)(wide ? y.as<float>() + first : nullptr, wide ? nullptr : elements<T>(y) + first,
                     static_cast<const T*>(entry->b), low, columns, tokens, rank, out);
  }
}

template <const LoraKernels& K>
void run(ops::Context& context, const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots,
         ops::LoraAttributes attributes) {
  // Consecutive rows often share an adapter, so slices have several rows.
  constexpr int64_t together = 16;
  const int64_t tokens = x.shape[0];
  const int64_t share = (tokens + context.threads->threads() - 1) / context.threads->threads();
  const int64_t grain = std::max(row_grain((x.shape[1] + y.shape[1]) * attributes.rank), std::min(share, together));
  const ThreadPool::Workspace workspace(*context.threads);
  by_type(x.dtype, [&]<class T>() {
    context.threads->parallel_for(0, tokens, grain, [&](int64_t lo, int64_t hi, int thread) {
      add_terms<T, K>(y, x, entries, slots, lo, hi, attributes, workspace.of(thread));
    });
  });
}

void reference(ops::Context&, const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots,
               ops::LoraAttributes attributes) {
  const int64_t in = x.shape[1], out = y.shape[1];
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    const ops::LoraEntry* entry = entry_of(entries, slots, t, attributes);
    if (entry == nullptr) continue;
    const auto matrix = [&](const void* data, int64_t rows, int64_t columns) {
      return Tensor{const_cast<void*>(data), x.dtype, Shape{rows, columns}, x.device};
    };
    const Tensor a = matrix(entry->a, entry->rank, in), b = matrix(entry->b, out, entry->rank);
    std::vector<double> low(static_cast<size_t>(entry->rank));
    for (int64_t i = 0; i < a.elements(); ++i)
      low[static_cast<size_t>(i / in)] += element(a, i) * element(x, t * in + i % in);
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t r = 0; r < entry->rank; ++r) sum += element(b, o * entry->rank + r) * low[static_cast<size_t>(r)];
      set_element(y, t * out + o, element(y, t * out + o) + static_cast<double>(entry->factor) * sum);
    }
  }
}

// One expert after another.
void run_grouped(ops::Context& context, const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots,
                 const Tensor& token_of_row, const Tensor& offsets, ops::GroupedLoraAttributes attributes) {
  constexpr const char* op = ops::GroupedLora::name;
  const int32_t* begin = checked_offsets(op, offsets, x.shape[0]);
  std::vector<int32_t> own;
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    own.push_back(slots.as<int32_t>()[index_of(op, "token_of_row", token_of_row, n, slots.shape[0])]);
  }
  const Tensor by_row{own.data(), DType::i32, token_of_row.shape, &context.device};
  for (int64_t e = 0; e + 1 < offsets.shape[0]; ++e) {
    const int64_t from = begin[e], to = begin[e + 1];
    ops::lora(context, y.slice(from, to), x.slice(from, to), entries, by_row.slice(from, to),
              {.layer = attributes.layer + e * attributes.layer_step, .rank = attributes.rank});
  }
}

}  // namespace

void register_lora(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Lora, run, lora_kernels, declines);
  registry.add<ops::Lora>(DeviceKind::cpu, "reference", reference);
  registry.add<ops::GroupedLora>(DeviceKind::cpu, "by_expert", run_grouped);
}

}  // namespace ingot::cpu
