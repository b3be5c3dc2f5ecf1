#include "ops/attention.h"

#include "backend/cpu/attention_plan.h"
#include "backend/cpu/attention_run.h"
#include "backend/cpu/ops.h"

namespace ingot::cpu {

void check_layout(const Tensor& q, const ops::KvPages& pages, const ops::PagedLayout& layout) {
  const char* op = ops::PagedAttention::name;
  const auto starts = sequence_offsets(op, layout.query_offsets, q.shape[0]);
  const int64_t page = pages.k.shape[1];
  const int64_t max_pages = layout.tables.shape[1];
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const int64_t length = layout.lengths.as<int32_t>()[s];
    const int64_t used = (length + page - 1) / page;
    if (length < starts[s + 1] - starts[s] || used > max_pages) {
      throw_error(ErrorKind::internal,
                  "{}: sequence {} has {} keys, which do not fit its {} queries or its {} pages of {}", op, s, length,
                  starts[s + 1] - starts[s], max_pages, page);
    }
    const int32_t* table = layout.tables.as<int32_t>() + static_cast<int64_t>(s) * max_pages;
    for (int64_t i = 0; i < used; ++i) {
      if (table[i] < 0 || table[i] >= pages.k.shape[0]) {
        throw_error(ErrorKind::internal, "{}: page {} of sequence {} is {}, outside the {} pages of the cache", op, i,
                    s, table[i], pages.k.shape[0]);
      }
    }
  }
}

namespace {

template <const AttentionKernels& K>
void add_kernels(ops::Registry& registry, const char* name) {
  registry.add<ops::Attention>(DeviceKind::cpu, name, run_attention<K>);
  registry.add<ops::AttentionBackward>(DeviceKind::cpu, name, run_backward<K>);
  registry.add<ops::PagedAttention>(DeviceKind::cpu, name, run_paged<K>);
}

}  // namespace

void register_attention(ops::Registry& registry, Levels levels) {
  register_kv_store(registry, levels);
#if defined(INGOT_SIMD_X86)
  if (levels.best >= Isa::amx) add_kernels<amx::attention_kernels>(registry, "amx");
  if (levels.best >= Isa::avx512) {
    const auto add_fma = [&] { add_kernels<avx512::attention_fma_kernels>(registry, "avx512_fma"); };
    if (levels.best >= Isa::avx512_fma) add_fma();
    add_kernels<avx512::attention_kernels>(registry, "avx512");
    if (levels.best < Isa::avx512_fma) add_fma();
  }
  if (levels.best >= Isa::avx2) add_kernels<avx2::attention_kernels>(registry, "avx2");
#endif
  add_kernels<plain::attention_kernels>(registry, "plain");
  registry.add<ops::Attention>(DeviceKind::cpu, "reference", reference_attention);
  registry.add<ops::AttentionBackward>(DeviceKind::cpu, "reference", reference_attention_backward);
  registry.add<ops::PagedAttention>(DeviceKind::cpu, "reference", reference_paged_attention);
}

}  // namespace ingot::cpu
