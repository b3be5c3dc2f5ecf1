#include "backend/gpu/attention/sequence_tables.h"

#include "backend/gpu/gpu.h"

GPU_KERNEL(sequence_tables, SequenceTables, 32)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

GPU_KERNEL_BODY(sequence_tables, SequenceTables) {
  for (int64_t s = thread_index(); s <= a.sequences; s += 32) {
    const int32_t begin = a.offsets[s];
    a.q_offsets[s] = static_cast<int32_t>(begin * a.q_row);
    a.kv_offsets[s] = static_cast<int32_t>(begin * a.kv_row);
    if (s < a.sequences) a.lengths[s] = a.offsets[s + 1] - begin;
  }
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"

namespace ingot::gpu {

void assign_sequence_tables(ops::Context& context, const SequenceTables& tables) {
  launch(context, sequence_tables, {1}, tables);
}

}  // namespace ingot::gpu
#endif
