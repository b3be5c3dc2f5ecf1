#include "backend/gpu/rows.h"

namespace ingot::gpu {

struct LayerNormArgs {
  void* y;
  float* mean;  // may be null, as may rstd and bias
  float* rstd;
  const void* x;
  const float* weight;
  const float* bias;
  float epsilon;
  int64_t n;  // features; one block per row
};

struct LayerNormDxArgs {
  void* dx;
  const void* dy;
  const void* x;
  const float* weight;
  const float* mean;
  const float* rstd;
  bool accumulate;
  int64_t n;
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(layer_norm, LayerNormArgs, 256)
GPU_KERNEL_PACKS(layer_norm_dx, LayerNormDxArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

// The variance is summed from the differences to the mean, so that no digits are lost when the mean is large.
template <class T, int V>
GPU_FN void forward(const LayerNormArgs& a) {
  GPU_SHARED(RowStorage, shared);
  const int64_t row = block_index();
  const T* x = static_cast<const T*>(a.x) + row * a.n;
  T* y = static_cast<T*>(a.y) + row * a.n;
  const auto count = static_cast<float>(a.n);
  const float mean = sum_of_row<V>(a.n, shared, [](float sum, float value) { return sum + value; }, x) / count;
  const float squares =
      sum_of_row<V>(a.n, shared, [=](float sum, float value) { return fma(value - mean, value - mean, sum); }, x);
  const float rstd = 1.0F / square_root(squares / count + a.epsilon);
  if (thread_index() == 0) {
    if (a.mean != nullptr) a.mean[row] = mean;
    if (a.rstd != nullptr) a.rstd[row] = rstd;
  }
  map_row<V>(
      a.n, y, [=](float value, float weight, float bias) { return fma((value - mean) * rstd, weight, bias); }, x,
      a.weight, OptionalRow<float>{a.bias, a.bias != nullptr});
}

template <class T, int V>
GPU_FN void input_gradient(const LayerNormDxArgs& a) {
  GPU_SHARED(RowStorage, shared);
  const int64_t row = block_index();
  const T* x = static_cast<const T*>(a.x) + row * a.n;
  const T* dy = static_cast<const T*>(a.dy) + row * a.n;
  T* dx = static_cast<T*>(a.dx) + row * a.n;
  const auto count = static_cast<float>(a.n);
  const float mean = a.mean[row];
  const float rstd = a.rstd[row];
  struct Sums {
    float g, gx;
  };
  const auto add = [=](const Sums& sums, float of_dy, float of_x, float weight) {
    const float g = of_dy * weight;
    return Sums{sums.g + g, fma(g, of_x - mean, sums.gx)};
  };
  const Sums sums = reduce_row<V>(a.n, Sums{0, 0}, add, dy, x, a.weight);
  const float mean_g = block_sum<row_threads>(sums.g, shared.sums) / count;
  const float projection = rstd * rstd * (block_sum<row_threads>(sums.gx, shared.sums) / count);
  const auto dx_of = [=](float of_dy, float of_x, float weight, float before) {
    return before + (of_dy * weight - mean_g - (of_x - mean) * projection) * rstd;
  };
  map_row<V>(a.n, dx, dx_of, dy, x, a.weight, OptionalRow<T>{dx, a.accumulate});
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(layer_norm, LayerNormArgs, forward)
GPU_KERNEL_BODY_PACKS(layer_norm_dx, LayerNormDxArgs, input_gradient)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/norm/norm_weights.h"
#include "backend/gpu/ops.h"
#include "ops/layer_norm.h"
#include "ops/layer_norm_bytes.h"

namespace ingot::gpu {
namespace {

using ops::Context;

float* floats_or_null(const Tensor& tensor) { return tensor ? tensor.as<float>() : nullptr; }

void run_forward(Context& context, const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                 const Tensor& weight, const Tensor& bias, float epsilon) {
  const int64_t n = x.shape[1];
  const LayerNormArgs args{
      y.data, floats_or_null(mean), floats_or_null(rstd), x.data, weight.as<float>(), floats_or_null(bias), epsilon, n};
  launch(context, of_rows(layer_norm, n, {y, x, weight, bias}), {x.shape[0]}, args);
}

void run_backward(Context& context, const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                  const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                  ops::LayerNormBackwardAttributes attributes) {
  const int64_t rows = x.shape[0];
  const int64_t n = x.shape[1];
  if (dweight || dbias) {  // must come first: dx may be dy
    const Arena::Scope scope(context.scratch);
    auto* sums = static_cast<float*>(context.scratch.allocate_bytes(ops::layer_norm_bytes(rows, n)));
    norm_weight_gradients(context, dweight, dbias, dy, x, mean, rstd, sums, ops::layer_norm_block,
                          attributes.accumulate_dweight);
  }
  launch(
      context, of_rows(layer_norm_dx, n, {dx, dy, x, weight}), {rows},
      {dx.data, dy.data, x.data, weight.as<float>(), mean.as<float>(), rstd.as<float>(), attributes.accumulate_dx, n});
}

}  // namespace

void register_layer_norm(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::LayerNorm>(kind, "simt", run_forward);
  registry.add<ops::LayerNormBackward>(kind, "simt", run_backward);
}

}  // namespace ingot::gpu
#endif
