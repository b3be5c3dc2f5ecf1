#include "backend/gpu/number.h"

namespace ingot::gpu {

struct RmsNormArgs {
  void* y;
  float* rstd;  // may be null
  const void* x;
  const float* weight;
  float epsilon;
  float weight_offset;
  int64_t n;  // features; a block is a row
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

// Block (i, j) sums rows j * rows_a_block and following for columns i * 256 and following.
struct RmsNormDweightArgs {
  float* sums;  // [blocks of rows, n]
  const void* dy;
  const void* x;
  const float* rstd;
  int64_t rows;
  int64_t n;
  int64_t rows_a_block;
};

}  // namespace ingot::gpu

GPU_KERNEL_PACKS(rms_norm, RmsNormArgs, 256)
GPU_KERNEL_PACKS(rms_norm_dx, RmsNormDxArgs, 256)
GPU_KERNEL_TYPES(rms_norm_dweight, RmsNormDweightArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int threads = 256;

struct Room {
  float sums[threads / 32];
};

template <class T, int V>
GPU_FN void forward(const RmsNormArgs& a) {
  GPU_SHARED(Room, room);
  const int64_t row = block_index();
  const T* x = static_cast<const T*>(a.x) + row * a.n;
  T* y = static_cast<T*>(a.y) + row * a.n;
  float squares = 0;
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    const auto values = load_floats<V>(x + j);
    for (int i = 0; i < V; ++i) squares = fma(values.at[i], values.at[i], squares);
  }
  squares = block_sum<threads>(squares, room.sums);
  const float rstd = 1.0F / square_root(squares / static_cast<float>(a.n) + a.epsilon);
  if (a.rstd != nullptr && thread_index() == 0) a.rstd[row] = rstd;
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    auto values = load_floats<V>(x + j);
    const auto weight = load_floats<V>(a.weight + j);
    for (int i = 0; i < V; ++i) values.at[i] = values.at[i] * rstd * (a.weight_offset + weight.at[i]);
    store_floats(y + j, values);
  }
}

template <class T, int V>
GPU_FN void input_gradient(const RmsNormDxArgs& a) {
  GPU_SHARED(Room, room);
  const int64_t row = block_index();
  const T* x = static_cast<const T*>(a.x) + row * a.n;
  const T* dy = static_cast<const T*>(a.dy) + row * a.n;
  T* dx = static_cast<T*>(a.dx) + row * a.n;
  float products = 0;
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    const auto of_x = load_floats<V>(x + j);
    const auto of_dy = load_floats<V>(dy + j);
    const auto weight = load_floats<V>(a.weight + j);
    for (int i = 0; i < V; ++i) {
      products = fma(of_dy.at[i] * (a.weight_offset + weight.at[i]), of_x.at[i], products);
    }
  }
  products = block_sum<threads>(products, room.sums);
  const float rstd = a.rstd[row];
  const float pull = rstd * rstd * (products / static_cast<float>(a.n));
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    const auto of_x = load_floats<V>(x + j);
    const auto of_dy = load_floats<V>(dy + j);
    const auto weight = load_floats<V>(a.weight + j);
    Floats<V> result{};
    if (a.accumulate) result = load_floats<V>(dx + j);
    for (int i = 0; i < V; ++i) {
      result.at[i] += rstd * fma(-of_x.at[i], pull, of_dy.at[i] * (a.weight_offset + weight.at[i]));
    }
    store_floats(dx + j, result);
  }
}

template <class T>
GPU_FN void weight_gradient(const RmsNormDweightArgs& a) {
  const int64_t j = static_cast<int64_t>(block_index()) * threads + thread_index();
  if (j >= a.n) return;
  const int64_t begin = block_index_y() * a.rows_a_block;
  const int64_t end = begin + a.rows_a_block < a.rows ? begin + a.rows_a_block : a.rows;
  float sum = 0;
  for (int64_t t = begin; t < end; ++t) {
    const float dy = to_float(static_cast<const T*>(a.dy)[t * a.n + j]);
    sum = fma(dy, to_float(static_cast<const T*>(a.x)[t * a.n + j]) * a.rstd[t], sum);
  }
  a.sums[block_index_y() * a.n + j] = sum;
}

}  // namespace

GPU_KERNEL_BODY_PACKS(rms_norm, RmsNormArgs, forward)
GPU_KERNEL_BODY_PACKS(rms_norm_dx, RmsNormDxArgs, input_gradient)
GPU_KERNEL_BODY_TYPES(rms_norm_dweight, RmsNormDweightArgs, weight_gradient)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/column_sums.h"
#include "backend/gpu/launch.h"
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
  if (dweight) {  // first: dx may be dy
    const Arena::Scope scope(context.scratch);
    auto* sums = static_cast<float*>(context.scratch.take_bytes(ops::rms_norm_bytes(rows, n)));
    const int64_t blocks = blocks_of(rows, ops::rms_norm_block);
    launch(context, of_type(rms_norm_dweight, x.dtype), {blocks_of(n, 256), blocks},
           {sums, dy.data, x.data, rstd.as<float>(), rows, n, ops::rms_norm_block});
    sum_rows(context, dweight.as<float>(), sums, blocks, n, attributes.accumulate_dweight);
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
