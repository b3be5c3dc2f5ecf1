#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "base/error.h"
#include "ops/attention.h"

namespace ingot::cpu {
namespace {

using ops::Context;

int64_t slot_of(const ops::KvPages& pages, const Tensor& slots, int64_t t) {
  const int64_t slot = slots.as<int32_t>()[t];
  if (slot < 0 || slot >= pages.k.shape[0] * pages.k.shape[1]) {
    throw_error(ErrorKind::internal, "{}: token {} has slot {}, outside the cache of {} pages of {}",
                ops::KvStore::name, t, slot, pages.k.shape[0], pages.k.shape[1]);
  }
  return slot;
}

void store_row(const Tensor& pages, int64_t slot, const Tensor& rows, int64_t t) {
  const int64_t n = rows.shape[1];
  if (rows.dtype == pages.dtype) {
    const size_t bytes = static_cast<size_t>(n) * size_of(rows.dtype);
    std::memcpy(static_cast<std::byte*>(pages.data) + static_cast<size_t>(slot) * bytes,
                static_cast<const std::byte*>(rows.data) + static_cast<size_t>(t) * bytes, bytes);
  } else if (rows.dtype == DType::bf16) {
    const uint16_t* from = rows.as<uint16_t>() + t * n;
    float* to = pages.as<float>() + slot * n;
    for (int64_t j = 0; j < n; ++j) to[j] = bf16_to_float(from[j]);
  } else {
    const float* from = rows.as<float>() + t * n;
    uint16_t* to = pages.as<uint16_t>() + slot * n;
    for (int64_t j = 0; j < n; ++j) to[j] = float_to_bf16(from[j]);
  }
}

void run(Context& context, const ops::KvPages& pages, const Tensor& k, const Tensor& v, const Tensor& slots) {
  context.threads->parallel_for(0, k.shape[0], row_grain(2 * k.shape[1]), [&](int64_t lo, int64_t hi) {
    for (int64_t t = lo; t < hi; ++t) {
      const int64_t slot = slot_of(pages, slots, t);
      store_row(pages.k, slot, k, t);
      store_row(pages.v, slot, v, t);
    }
  });
}

void reference(Context&, const ops::KvPages& pages, const Tensor& k, const Tensor& v, const Tensor& slots) {
  const int64_t n = k.shape[1];
  for (int64_t i = 0; i < k.elements(); ++i) {
    const int64_t to = slot_of(pages, slots, i / n) * n + i % n;
    set_element(pages.k, to, element(k, i));
    set_element(pages.v, to, element(v, i));
  }
}

}  // namespace

void register_kv_store(ops::Registry& registry, Levels) {
  registry.add<ops::KvStore>(DeviceKind::cpu, "plain", run);  // copies or converts: no SIMD variants
  registry.add<ops::KvStore>(DeviceKind::cpu, "reference", reference);
}

}  // namespace ingot::cpu
