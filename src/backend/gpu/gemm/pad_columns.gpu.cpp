#include "backend/gpu/number.h"

namespace ingot::gpu {

struct PadColumnsArgs {
  float* y;
  int64_t first;    // column
  int64_t columns;  // of y
  int64_t count;    // of elements in the rows' columns from `first` on; a thread assigns one
};

}  // namespace ingot::gpu

GPU_KERNEL(pad_columns_f32, PadColumnsArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

GPU_KERNEL_BODY(pad_columns_f32, PadColumnsArgs) {
  const int64_t i = static_cast<int64_t>(block_index()) * 256 + thread_index();
  if (i >= a.count) return;
  const int64_t width = a.columns - a.first;
  a.y[i / width * a.columns + a.first + i % width] = bits_of<float>(0xff7fffff);
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/gemm/gemm_ops.h"
#include "backend/gpu/launch.h"

namespace ingot::gpu {

void pad_columns(ops::Context& context, const Tensor& y, int64_t first) {
  const int64_t count = y.shape[0] * (y.shape[1] - first);
  if (count == 0) return;
  launch(context, pad_columns_f32, {blocks_of(count, 256)}, {y.as<float>(), first, y.shape[1], count});
}

}  // namespace ingot::gpu
#endif
