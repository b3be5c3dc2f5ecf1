#include "backend/gpu/number.h"

namespace ingot::gpu {

struct KvStoreArgs {
  void* k_pages;
  void* v_pages;
  const void* k;
  const void* v;
  const int32_t* slots;
  int64_t num_slots;
  int64_t n;       // elements per token; one block per token
  bool from_bf16;  // k and v are bf16, else f32; f16 k and v go into f16 pages
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(kv_store, KvStoreArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <int V, class From, class To>
GPU_FN void store_row(void* pages, int64_t slot, const void* rows, int64_t n) {
  To* to = static_cast<To*>(pages) + slot * n;
  const From* from = static_cast<const From*>(rows) + block_index() * n;
  for (int64_t j = thread_index() * V; j < n; j += 256 * V) store_floats(to + j, load_floats<V>(from + j));
}

template <int V, class From, class To>
GPU_FN void store_rows(const KvStoreArgs& a, int64_t slot) {
  store_row<V, From, To>(a.k_pages, slot, a.k, a.n);
  store_row<V, From, To>(a.v_pages, slot, a.v, a.n);
}

// A token whose slot is out of range is not stored.
template <class T, int V>
GPU_FN void store_token(const KvStoreArgs& a) {
  const int64_t slot = a.slots[block_index()];
  if (slot < 0 || slot >= a.num_slots) return;
  if constexpr (is_f16<T>) {
    store_rows<V, F16, F16>(a, slot);
  } else if (a.from_bf16) {
    store_rows<V, Bf16, T>(a, slot);
  } else {
    store_rows<V, float, T>(a, slot);
  }
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(kv_store, KvStoreArgs, store_token)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/attention.h"

namespace ingot::gpu {
namespace {

void run(ops::Context& context, const ops::KvPages& pages, const Tensor& k, const Tensor& v, const Tensor& slots) {
  const int64_t n = k.shape[1];
  launch(context, of_rows(kv_store, n, {pages.k, pages.v, k, v}), {k.shape[0]},
         {pages.k.data, pages.v.data, k.data, v.data, slots.as<int32_t>(), pages.k.shape[0] * pages.k.shape[1], n,
          k.dtype == DType::bf16});
}

}  // namespace

void register_kv_store(ops::Registry& registry, DeviceKind kind) { registry.add<ops::KvStore>(kind, "simt", run); }

}  // namespace ingot::gpu
#endif
