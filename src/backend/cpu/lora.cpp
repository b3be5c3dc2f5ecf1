#include "ops/lora.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/lora.h"

namespace ingot::cpu {
namespace {

// The entry of row t, null for none.
const ops::LoraEntry* entry_of(const Tensor& entries, const Tensor& slots, int64_t t, ops::LoraAttributes attributes) {
  const int32_t slot = slots.as<int32_t>()[t];
  if (slot < 0) return nullptr;
  const auto* all = reinterpret_cast<const ops::LoraEntry*>(entries.as<int64_t>());
  const ops::LoraEntry* entry = all + slot * entries.shape[1] + attributes.layer;
  return entry->rank > 0 ? entry : nullptr;
}

template <const LoraKernels& K>
void run(ops::Context& context, const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots,
         ops::LoraAttributes attributes) {
  const int64_t in = x.shape[1], out = y.shape[1];
  const bool wide = y.dtype == DType::f32;
  by_type(x.dtype, [&]<class T>() {
    context.threads->parallel_for(0, x.shape[0], row_grain((in + out) * attributes.rank), [&](int64_t lo, int64_t hi) {
      thread_local std::vector<float> low;
      low.resize(static_cast<size_t>(attributes.rank));
      for (int64_t t = lo; t < hi; ++t) {
        const ops::LoraEntry* entry = entry_of(entries, slots, t, attributes);
        if (entry == nullptr) continue;
        of_type<T>(K.down)(low.data(), static_cast<const T*>(entry->a), elements<T>(x) + t * in, entry->rank, in,
                           entry->factor);
        T* own = nullptr;
        float* single = nullptr;
        if (wide) {
          single = y.as<float>() + t * out;
        } else {
          own = elements<T>(y) + t * out;
        }
        of_type<T>(K.up)(own, single, static_cast<const T*>(entry->b), low.data(), entry->rank, out);
      }
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

}  // namespace

void register_lora(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Lora, run, lora_kernels);
  registry.add<ops::Lora>(DeviceKind::cpu, "reference", reference);
}

}  // namespace ingot::cpu
