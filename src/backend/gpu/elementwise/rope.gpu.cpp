#include "backend/gpu/elementwise/functions.h"

namespace ingot::gpu {

struct RopeArgs {
  void* y;
  const void* x;
  const int32_t* positions;
  const float* frequencies;
  int heads;
  int head_dim;
  int pairs;
  bool inverse;
};

struct RopeKvStoreArgs {
  void* q;  // q and k are rotated in place
  void* k;
  const void* v;
  void* k_pages;
  void* v_pages;
  const int32_t* positions;
  const float* frequencies;
  const int32_t* slots;
  int64_t num_slots;
  int heads;
  int kv_heads;
  int head_dim;
  int pairs;
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(rope, RopeArgs, 256)
GPU_KERNEL_FORWARD_PACKS(rope_kv_store, RopeKvStoreArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int chunk = 256;  // pairs whose sines and cosines are in shared memory at a time

struct SharedStorage {
  float sine[chunk];
  float cosine[chunk];
};

// The heads of one token.
struct Heads {
  int count;
  int head_dim;
  int pairs;
};

// Calls rotate(begin, count) for chunks of the pairs, whose sines and cosines are in shared memory then.
template <class Rotate>
GPU_FN void for_chunks(SharedStorage& shared, const float* frequencies, int pairs, float position, bool inverse,
                       Rotate rotate) {
  for (int begin = 0; begin < pairs; begin += chunk) {
    const int count = pairs - begin < chunk ? pairs - begin : chunk;
    for (int i = thread_index(); i < count; i += 256) {
      const SineCosine of_angle = sine_cosine(position * frequencies[begin + i]);
      shared.sine[i] = inverse ? -of_angle.sine : of_angle.sine;
      shared.cosine[i] = of_angle.cosine;
    }
    block_barrier();
    rotate(begin, count);
    block_barrier();
  }
}

// y = x for pairs begin .. begin + count of every head, rotated.
template <class T, int V>
GPU_FN void rotate_pairs(const SharedStorage& shared, T* y, const T* x, const Heads& heads, int begin, int count) {
  for (int at = thread_index() * V; at < heads.count * count; at += 256 * V) {
    const int pair = at % count;
    const int64_t low_at = static_cast<int64_t>(at / count) * heads.head_dim + begin + pair;
    auto low = load_floats<V>(x + low_at);
    auto high = load_floats<V>(x + low_at + heads.pairs);
    for (int i = 0; i < V; ++i) {
      const float s = shared.sine[pair + i];
      const float c = shared.cosine[pair + i];
      const float before = low.at[i];
      low.at[i] = fma(before, c, -(high.at[i] * s));
      high.at[i] = fma(high.at[i], c, before * s);
    }
    store_floats(y + low_at, low);
    store_floats(y + low_at + heads.pairs, high);
  }
}

// y = x for the elements that are not rotated.
template <class T, int V>
GPU_FN void copy_rest(T* y, const T* x, const Heads& heads) {
  const int rest = heads.head_dim - 2 * heads.pairs;
  for (int at = thread_index() * V; at < heads.count * rest; at += 256 * V) {
    const int64_t from = static_cast<int64_t>(at / rest) * heads.head_dim + 2 * heads.pairs + at % rest;
    store_pack<T, V>(y + from, load_pack<T, V>(x + from));
  }
}

// One block per token: its sines serve all heads.
template <class T, int V>
GPU_FN void rotate(const RopeArgs& a) {
  GPU_SHARED(SharedStorage, shared);
  const int64_t token = block_index();
  const int64_t first = token * a.heads * a.head_dim;
  const T* x = static_cast<const T*>(a.x) + first;
  T* y = static_cast<T*>(a.y) + first;
  const Heads heads{a.heads, a.head_dim, a.pairs};
  for_chunks(shared, a.frequencies, a.pairs, static_cast<float>(a.positions[token]), a.inverse,
             [&](int begin, int count) { rotate_pairs<T, V>(shared, y, x, heads, begin, count); });
  if (a.x != a.y) copy_rest<T, V>(y, x, heads);
}

// One block per token. A token whose slot is out of range is not stored.
template <class T, int V>
GPU_FN void rotate_and_store(const RopeKvStoreArgs& a) {
  GPU_SHARED(SharedStorage, shared);
  const int64_t token = block_index();
  const int64_t width = static_cast<int64_t>(a.kv_heads) * a.head_dim;
  T* q = static_cast<T*>(a.q) + token * a.heads * a.head_dim;
  T* k = static_cast<T*>(a.k) + token * width;
  for_chunks(shared, a.frequencies, a.pairs, static_cast<float>(a.positions[token]), false, [&](int begin, int count) {
    rotate_pairs<T, V>(shared, q, q, {a.heads, a.head_dim, a.pairs}, begin, count);
    rotate_pairs<T, V>(shared, k, k, {a.kv_heads, a.head_dim, a.pairs}, begin, count);
  });
  const int64_t slot = a.slots[token];
  if (slot < 0 || slot >= a.num_slots) return;
  const T* v = static_cast<const T*>(a.v) + token * width;
  T* stored_k = static_cast<T*>(a.k_pages) + slot * width;
  T* stored_v = static_cast<T*>(a.v_pages) + slot * width;
  for (int64_t at = thread_index() * V; at < width; at += 256 * V) {
    store_pack<T, V>(stored_k + at, load_pack<T, V>(k + at));
    store_pack<T, V>(stored_v + at, load_pack<T, V>(v + at));
  }
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(rope, RopeArgs, rotate)
GPU_KERNEL_BODY_FORWARD_PACKS(rope_kv_store, RopeKvStoreArgs, rotate_and_store)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include <numeric>

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/rope_kv_store.h"

namespace ingot::gpu {
namespace {

void run(ops::Context& context, const Tensor& y, const Tensor& x, const Tensor& positions, const Tensor& frequencies,
         ops::RopeAttributes attributes) {
  const int64_t head_dim = x.shape[1] / attributes.heads;
  const int64_t pairs = frequencies.shape[0];
  launch(context, of_rows(rope, std::gcd(pairs, head_dim), {y, x}), {x.shape[0]},
         {y.data, x.data, positions.as<int32_t>(), frequencies.as<float>(), static_cast<int>(attributes.heads),
          static_cast<int>(head_dim), static_cast<int>(pairs), attributes.inverse});
}

void run_and_store(ops::Context& context, const Tensor& q, const ops::KvPages& pages, const Tensor& k, const Tensor& v,
                   const Tensor& positions, const Tensor& frequencies, const Tensor& slots,
                   ops::RopeKvStoreAttributes attributes) {
  const int64_t head_dim = q.shape[1] / attributes.heads;
  const int64_t pairs = frequencies.shape[0];
  launch(context, of_rows(rope_kv_store, std::gcd(pairs, head_dim), {q, pages.k, pages.v, k, v}), {q.shape[0]},
         {.q = q.data,
          .k = k.data,
          .v = v.data,
          .k_pages = pages.k.data,
          .v_pages = pages.v.data,
          .positions = positions.as<int32_t>(),
          .frequencies = frequencies.as<float>(),
          .slots = slots.as<int32_t>(),
          .num_slots = pages.k.shape[0] * pages.k.shape[1],
          .heads = static_cast<int>(attributes.heads),
          .kv_heads = static_cast<int>(attributes.kv_heads),
          .head_dim = static_cast<int>(head_dim),
          .pairs = static_cast<int>(pairs)});
}

bool converts(const ops::Context&, const Tensor& q, const ops::KvPages& pages, const Tensor&, const Tensor&,
              const Tensor&, const Tensor&, const Tensor&, ops::RopeKvStoreAttributes, ops::Refusal refuse) {
  return pages.k.dtype != q.dtype && refuse("does not convert to the type of the pages");
}

}  // namespace

void register_rope(ops::Registry& registry, DeviceKind kind) { registry.add<ops::Rope>(kind, "simt", run); }

void register_rope_kv_store(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::RopeKvStore>(kind, "simt", run_and_store, converts);
  ops::add_rope_kv_store_apart(registry, kind);
}

}  // namespace ingot::gpu
#endif
