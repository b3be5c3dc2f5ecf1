#include "backend/gpu/gemm/block_quant.h"
#include "backend/gpu/number.h"

namespace ingot::gpu {

struct EmbeddingArgs {
  void* y;
  const void* table;
  const int32_t* ids;
  QuantFormat stored;
  int64_t vocabulary;
  int64_t n;      // features; one block per token
  int64_t first;  // ops::TablePart
  bool is_part;
};

constexpr int zeros_per_thread = 4;
struct ZeroArgs {
  float* y;
  int64_t n;
};

struct EmbeddingBackwardArgs {
  float* dtable;
  const void* dy;
  const int32_t* ids;
  int64_t tokens;
  int64_t vocabulary;
  int64_t n;
  int32_t first;  // ops::TablePart
  bool accumulate;
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(embedding, EmbeddingArgs, 256)
GPU_KERNEL(embedding_zero, ZeroArgs, 256)
GPU_KERNEL_PACKS(embedding_backward, EmbeddingBackwardArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

// An id outside the table gives a row of NaN, or of zeros if the table is a part.
template <class T, int V>
GPU_FN void look_up(const EmbeddingArgs& a) {
  T* y = static_cast<T*>(a.y) + block_index() * a.n;
  const int64_t id = a.ids[block_index()] - a.first;
  const bool known = id >= 0 && id < a.vocabulary;
  const float other = a.is_part ? 0.0F : not_a_number();
  for (int64_t j = thread_index() * V; j < a.n; j += 256 * V) {
    Floats<V> values;
    for (int i = 0; i < V; ++i) values.at[i] = other;
    if (known) values = decode<V>(a.stored, a.table, id * a.n + j);
    store_floats(y + j, values);
  }
}

constexpr int ids_per_thread = 4;  // compared between two block barriers

// By round and warp: a ballot of the threads whose id equals the block's id.
struct SharedStorage {
  uint64_t same[ids_per_thread][256 / 32];
};

// Block (t, c) has columns c * 256 V and following. If token t is the first one of its id, the block adds up the rows
// of all tokens of that id in their order; else it does nothing. Ids outside the vocabulary are skipped.
template <class T, int V>
GPU_FN void sum_rows_of_id(const EmbeddingBackwardArgs& a) {
  GPU_SHARED(SharedStorage, shared);
  const int64_t token = block_index();
  const int32_t id = a.ids[token];
  const int64_t row_of_id = id - a.first;
  if (row_of_id < 0 || row_of_id >= a.vocabulary) return;
  const int64_t j = (static_cast<int64_t>(block_index_y()) * 256 + thread_index()) * V;
  const bool has_column = j < a.n;
  const T* dy = static_cast<const T*>(a.dy) + j;
  float* sums = a.dtable + row_of_id * a.n + j;
  Floats<V> total{};
  bool first = true;
  for (int64_t begin = 0; begin < a.tokens; begin += 256 * ids_per_thread) {
    for (int i = 0; i < ids_per_thread; ++i) {
      const int64_t t = begin + i * 256 + thread_index();
      const uint64_t same = warp_ballot(t < a.tokens && a.ids[t] == id);
      if (lane_index() == 0) shared.same[i][warp_index()] = same;
    }
    block_barrier();
    for (int i = 0; i < ids_per_thread; ++i) {
      for (int w = 0; w < 256 / warp_width; ++w) {
        for (uint64_t same = shared.same[i][w]; same != 0; same &= same - 1) {
          const int bit = count_bits((same & (~same + 1)) - 1);
          const int64_t t = begin + i * 256 + w * warp_width + bit;
          if (first && t != token) return;  // another block adds to the row
          if (first && has_column && a.accumulate) total = load_floats<V>(sums);
          first = false;
          if (!has_column) continue;
          const auto row = load_floats<V>(dy + t * a.n);
          for (int k = 0; k < V; ++k) total.at[k] += row.at[k];
        }
      }
    }
    block_barrier();
  }
  if (has_column) store_floats(sums, total);
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(embedding, EmbeddingArgs, look_up)
GPU_KERNEL_BODY(embedding_zero, ZeroArgs) {
  for (int i = 0; i < zeros_per_thread; ++i) {
    const int64_t at = (static_cast<int64_t>(block_index()) * zeros_per_thread + i) * 256 + thread_index();
    if (at < a.n) a.y[at] = 0;
  }
}
GPU_KERNEL_BODY_PACKS(embedding_backward, EmbeddingBackwardArgs, sum_rows_of_id)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/embedding.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void run(Context& context, const Tensor& y, const Weight& table, const Tensor& ids, ops::TablePart part) {
  launch(context, of_decoded(embedding, y, table), {ids.shape[0]},
         {y.data, table.data, ids.as<int32_t>(), stored_as(table), table.out, table.in, part.first, part.is_part});
}

void run_backward(Context& context, const Tensor& dtable, const Tensor& dy, const Tensor& ids, bool accumulate,
                  ops::TablePart part) {
  const int64_t n = dtable.shape[1];
  if (!accumulate) {
    launch(context, embedding_zero, {blocks_of(dtable.elements(), 256 * zeros_per_thread)},
           {dtable.as<float>(), dtable.elements()});
  }
  const int64_t per_thread = is_vectorizable(n, {dy, dtable}) ? static_cast<int64_t>(16 / size_of(dy.dtype)) : 1;
  launch(context, of_rows(embedding_backward, n, {dy, dtable}), {ids.shape[0], blocks_of(n, 256 * per_thread)},
         {dtable.as<float>(), dy.data, ids.as<int32_t>(), ids.shape[0], dtable.shape[0], n,
          static_cast<int32_t>(part.first), accumulate});
}

}  // namespace

void register_embedding(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Embedding>(kind, "simt", run);
  registry.add<ops::EmbeddingBackward>(kind, "simt", run_backward);
}

}  // namespace ingot::gpu
#endif
