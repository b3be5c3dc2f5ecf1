#include "ops/rope_kv_store.h"

#include "base/error.h"
#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

namespace {

void run_apart(Context& context, const Tensor& q, const KvPages& pages, const Tensor& k, const Tensor& v,
               const Tensor& positions, const Tensor& frequencies, const Tensor& slots,
               RopeKvStoreAttributes attributes) {
  rope(context, q, q, positions, frequencies, {.heads = attributes.heads});
  rope(context, k, k, positions, frequencies, {.heads = attributes.kv_heads});
  kv_store(context, pages, k, v, slots);
}

}  // namespace

void rope_kv_store(Context& context, const Tensor& q, const KvPages& pages, const Tensor& k, const Tensor& v,
                   const Tensor& positions, const Tensor& frequencies, const Tensor& slots,
                   RopeKvStoreAttributes attributes) {
  const char* op = RopeKvStore::name;
  const auto& [heads, kv_heads] = attributes;
  check_rank(op, "q", q, 2);
  check(op, "q", context, q, q.shape, forward_types);
  check_rank(op, "k", k, 2);
  check(op, "k", context, k, {q.shape[0], k.shape[1]}, {q.dtype});
  check(op, "v", context, v, k.shape, {k.dtype});
  check(op, "positions", context, positions, {q.shape[0]}, {DType::i32});
  check(op, "slots", context, slots, {q.shape[0]}, {DType::i32});
  check_rank(op, "frequencies", frequencies, 1);
  check(op, "frequencies", context, frequencies, frequencies.shape, {DType::f32});
  if (heads < 1 || kv_heads < 1 || q.shape[1] % heads != 0 || q.shape[1] / heads * kv_heads != k.shape[1] ||
      2 * frequencies.shape[0] > q.shape[1] / heads) {
    throw_error(ErrorKind::internal, "{}: q is {} and k {}, which do not fit {} and {} heads and frequencies {}", op,
                q.text(), k.text(), heads, kv_heads, frequencies.text());
  }
  check_kv_pages(op, context, pages, k);
  if (q.elements() == 0) return;
  dispatch<RopeKvStore>(context, q, pages, k, v, positions, frequencies, slots, attributes);
}

void add_rope_kv_store_apart(Registry& registry, DeviceKind kind) {
  registry.add<RopeKvStore>(kind, "apart", run_apart);
}

}  // namespace ingot::ops
