// Rotary position embedding of new tokens and their storing in the KV cache, in one op: what precedes paged attention.
#pragma once

#include <cstdint>

#include "ops/attention.h"
#include "ops/rope.h"

namespace ingot::ops {

class Registry;

struct RopeKvStoreAttributes {
  int64_t heads = 0;     // of q
  int64_t kv_heads = 0;  // of k and v
};

// The same as rope of q [T, heads D] and of k [T, kv_heads D] in place, and kv_store of k and v, with their bits,
// shapes, dtypes and errors. q, k and v have the same dtype.
void rope_kv_store(Context& context, const Tensor& q, const KvPages& pages, const Tensor& k, const Tensor& v,
                   const Tensor& positions, const Tensor& frequencies, const Tensor& slots,
                   RopeKvStoreAttributes attributes);

struct RopeKvStore {
  static constexpr const char* name = "rope_kv_store";
  using Signature = void(Context&, const Tensor&, const KvPages&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&, const Tensor&, RopeKvStoreAttributes);
};

// Registers the implementation "apart" for any kind of device: one op after the other. It declines no call, so a
// backend registers its own implementations before it.
void add_rope_kv_store_apart(Registry& registry, DeviceKind kind);

}  // namespace ingot::ops
