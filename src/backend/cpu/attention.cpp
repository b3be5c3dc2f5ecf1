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

void register_attention(ops::Registry& registry, Levels levels) {
  register_kv_store(registry, levels);
#if defined(INGOT_SIMD_X86)
  INGOT_ADD_LEVEL(registry, levels.best, ops::Attention, run_attention, amx, attention_kernels);
  INGOT_ADD_LEVEL(registry, levels.best, ops::AttentionBackward, run_backward, amx, attention_kernels);
  INGOT_ADD_LEVEL(registry, levels.best, ops::PagedAttention, run_paged, amx, attention_kernels);
#endif
  INGOT_ADD_LEVELS(registry, levels.best, ops::Attention, run_attention, attention_kernels);
  registry.add<ops::Attention>(DeviceKind::cpu, "reference", reference_attention);
  INGOT_ADD_LEVELS(registry, levels.best, ops::AttentionBackward, run_backward, attention_kernels);
  registry.add<ops::AttentionBackward>(DeviceKind::cpu, "reference", reference_attention_backward);
  INGOT_ADD_LEVELS(registry, levels.best, ops::PagedAttention, run_paged, attention_kernels);
  registry.add<ops::PagedAttention>(DeviceKind::cpu, "reference", reference_paged_attention);
}

}  // namespace ingot::cpu
