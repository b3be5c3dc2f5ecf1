#include "backend/gpu/rows.h"

namespace ingot::gpu {

struct RmsNormArgs {
  void* y;
  float* rstd;  // may be null
  const void* x;
  const float* weight;
  float epsilon;
  float weight_offset;
  int64_t n;  // features; one block per row
};

struct RmsNormDxArgs {
  void* dx;
  const void* dy;
  const void* x;
  const float* weight;
  const float* rstd;
  float weight_offset;
  bool accumulate;
  int64_t n;
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(rms_norm, RmsNormArgs, 256)
GPU_KERNEL_PACKS(rms_norm_dx, RmsNormDxArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class T, int V>
GPU_FN void forward(const RmsNormArgs& a) {
  GPU_SHARED(RowStorage, shared);
  const int64_t row = block_index();
  const T* x = static_cast<const T*>(a.x) + row * a.n;
  T* y = static_cast<T*>(a.y) + row * a.n;
  const float squares = sum_of_row<V>(a.n, shared, [](float sum, float value) { return fma(value, value, sum); }, x);
  const float rstd = 1.0F / square_root(squares / static_cast<float>(a.n) + a.epsilon);
  if (a.rstd != nullptr && thread_index() == 0) a.rstd[row] = rstd;
  const float offset = a.weight_offset;
  map_row<V>(a.n, y, [=](float value, float weight) { return value * rstd * (offset + weight); }, x, a.weight);
}

template <class T, int V>
GPU_FN void input_gradient(const RmsNormDxArgs& a) {
  GPU_SHARED(RowStorage, shared);
  const int64_t row = block_index();
  const T* x = static_cast<const T*>(a.x) + row * a.n;
  const T* dy = static_cast<const T*>(a.dy) + row * a.n;
  T* dx = static_cast<T*>(a.dx) + row * a.n;
  const float offset = a.weight_offset;
  const auto add = [=](float sum, float of_dy, float of_x, float weight) {
    return fma(of_dy * (offset + weight), of_x, sum);
  };
  const float sum_gx = sum_of_row<V>(a.n, shared, add, dy, x, a.weight);
  const float rstd = a.rstd[row];
  const float projection = rstd * rstd * (sum_gx / static_cast<float>(a.n));
  const auto dx_of = [=](float of_dy, float of_x, float weight, float before) {
    return before + rstd * fma(-of_x, projection, of_dy * (offset + weight));
  };
  map_row<V>(a.n, dx, dx_of, dy, x, a.weight, OptionalRow<T>{dx, a.accumulate});
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(rms_norm, RmsNormArgs, forward)
GPU_KERNEL_BODY_PACKS(rms_norm_dx, RmsNormDxArgs, input_gradient)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/norm/norm_weights.h"
#include "backend/gpu/ops.h"
#include "ops/rms_norm.h"
#include "ops/rms_norm_bytes.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void forward(Context& context, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
             ops::RmsNormAttributes attributes) {
  const int64_t n = x.shape[1];
  const RmsNormArgs args{y.data,
                         rstd ? rstd.as<float>() : nullptr,
                         x.data,
                         weight.as<float>(),
                         attributes.epsilon,
                         attributes.weight_offset,
                         n};
  launch(context, of_rows(rms_norm, n, {y, x, weight}), {x.shape[0]}, args);
}

void backward(Context& context, const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x,
              const Tensor& weight, const Tensor& rstd, ops::RmsNormBackwardAttributes attributes) {
  const int64_t rows = x.shape[0];
  const int64_t n = x.shape[1];
  if (dweight) {  // must come first: dx may be dy
    const Arena::Scope scope(context.scratch);
    auto* sums = static_cast<float*>(context.scratch.allocate_bytes(ops::rms_norm_bytes(rows, n)));
    norm_weight_gradients(context, dweight, {}, dy, x, {}, rstd, sums, ops::rms_norm_block,
                          attributes.accumulate_dweight);
  }
  launch(context, of_rows(rms_norm_dx, n, {dx, dy, x, weight}), {rows},
         {dx.data, dy.data, x.data, weight.as<float>(), rstd.as<float>(), attributes.weight_offset,
          attributes.accumulate_dx, n});
}

}  // namespace

void register_rms_norm(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::RmsNorm>(kind, "simt", forward);
  registry.add<ops::RmsNormBackward>(kind, "simt", backward);
}

}  // namespace ingot::gpu
#endif
