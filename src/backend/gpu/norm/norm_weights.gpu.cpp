#include "backend/gpu/number.h"

namespace ingot::gpu {

// Block (i, j) sums the rows_per_block rows from j * rows_per_block on, in the 256 columns from i * 256 on.
struct NormWeightsArgs {
  float* sums;       // [blocks of rows, n]
  float* bias_sums;  // the same; may be null, as may mean
  const void* dy;
  const void* x;
  const float* mean;
  const float* rstd;
  int64_t rows;
  int64_t n;
  int64_t rows_per_block;
};

}  // namespace ingot::gpu

GPU_KERNEL_TYPES(norm_weights, NormWeightsArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class T>
GPU_FN void sum_block(const NormWeightsArgs& a) {
  const int64_t j = static_cast<int64_t>(block_index()) * 256 + thread_index();
  if (j >= a.n) return;
  const int64_t begin = block_index_y() * a.rows_per_block;
  const int64_t end = begin + a.rows_per_block < a.rows ? begin + a.rows_per_block : a.rows;
  float products = 0;
  float sum = 0;
  for (int64_t t = begin; t < end; ++t) {
    const float dy = to_float(static_cast<const T*>(a.dy)[t * a.n + j]);
    const float x = to_float(static_cast<const T*>(a.x)[t * a.n + j]);
    products = fma(dy, (x - (a.mean != nullptr ? a.mean[t] : 0.0F)) * a.rstd[t], products);
    sum += dy;
  }
  a.sums[block_index_y() * a.n + j] = products;
  if (a.bias_sums != nullptr) a.bias_sums[block_index_y() * a.n + j] = sum;
}

}  // namespace

GPU_KERNEL_BODY_TYPES(norm_weights, NormWeightsArgs, sum_block)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/norm/column_sums.h"
#include "backend/gpu/norm/norm_weights.h"

namespace ingot::gpu {

void norm_weight_gradients(ops::Context& context, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                           const Tensor& x, const Tensor& mean, const Tensor& rstd, float* sums, int64_t rows_per_block,
                           bool accumulate) {
  const int64_t rows = x.shape[0];
  const int64_t n = x.shape[1];
  const int64_t blocks = blocks_of(rows, rows_per_block);
  float* bias_sums = dbias ? sums + blocks * n : nullptr;
  launch(
      context, of_type(norm_weights, x.dtype), {blocks_of(n, 256), blocks},
      {sums, bias_sums, dy.data, x.data, mean ? mean.as<float>() : nullptr, rstd.as<float>(), rows, n, rows_per_block});
  if (dweight) sum_rows(context, dweight.as<float>(), sums, blocks, n, accumulate);
  if (dbias) sum_rows(context, dbias.as<float>(), bias_sums, blocks, n, accumulate);
}

}  // namespace ingot::gpu
#endif
