#include "backend/gpu/number.h"

namespace ingot::gpu {

struct ColumnSumArgs {
  float* out;
  const float* sums;
  int64_t rows;
  int64_t n;
  bool accumulate;
};

}  // namespace ingot::gpu

GPU_KERNEL(column_sums, ColumnSumArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

GPU_KERNEL_BODY(column_sums, ColumnSumArgs) {
  const int64_t j = static_cast<int64_t>(block_index()) * 256 + thread_index();
  if (j >= a.n) return;
  float sum = a.accumulate ? a.out[j] : 0.0F;
  for (int64_t r = 0; r < a.rows; ++r) sum += a.sums[r * a.n + j];
  a.out[j] = sum;
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/norm/column_sums.h"

namespace ingot::gpu {

void sum_rows(ops::Context& context, float* out, const float* sums, int64_t rows, int64_t n, bool accumulate) {
  launch(context, column_sums, {blocks_of(n, 256)}, {out, sums, rows, n, accumulate});
}

}  // namespace ingot::gpu
#endif
