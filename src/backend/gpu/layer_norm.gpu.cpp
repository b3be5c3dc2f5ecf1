#include "backend/gpu/number.h"

namespace ingot::gpu {

struct LayerNormArgs {
  void* y;
  float* mean;  // may be null, as rstd and bias
  float* rstd;
  const void* x;
  const float* weight;
  const float* bias;
  float epsilon;
  int64_t n;  // features; a block is a row
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

// Block (i, j) sums rows j * rows_a_block and following for columns i * 256 and following.
struct LayerNormDweightArgs {
  float* sums;       // [blocks of rows, n]
  float* bias_sums;  // the same
  const void* dy;
  const void* x;
  const float* mean;
  const float* rstd;
  int64_t rows;
  int64_t n;
  int64_t rows_a_block;
};

}  // namespace ingot::gpu

GPU_KERNEL_PACKS(layer_norm, LayerNormArgs, 256)
GPU_KERNEL_PACKS(layer_norm_dx, LayerNormDxArgs, 256)
GPU_KERNEL_TYPES(layer_norm_dweight, LayerNormDweightArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int threads = 256;

struct Room {
  float sums[threads / 32];
};

// The variance from the differences to the mean: no digits are lost when the mean is large.
template <class T, int V>
GPU_FN void forward(const LayerNormArgs& a) {
  GPU_SHARED(Room, room);
  const int64_t row = block_index();
  const T* x = static_cast<const T*>(a.x) + row * a.n;
  T* y = static_cast<T*>(a.y) + row * a.n;
  const auto count = static_cast<float>(a.n);
  float sum = 0;
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    const auto values = load_floats<V>(x + j);
    for (int i = 0; i < V; ++i) sum += values.at[i];
  }
  const float mean = block_sum<threads>(sum, room.sums) / count;
  float squares = 0;
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    const auto values = load_floats<V>(x + j);
    for (int i = 0; i < V; ++i) squares = fma(values.at[i] - mean, values.at[i] - mean, squares);
  }
  const float rstd = 1.0F / square_root(block_sum<threads>(squares, room.sums) / count + a.epsilon);
  if (thread_index() == 0) {
    if (a.mean != nullptr) a.mean[row] = mean;
    if (a.rstd != nullptr) a.rstd[row] = rstd;
  }
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    auto values = load_floats<V>(x + j);
    const auto weight = load_floats<V>(a.weight + j);
    Floats<V> bias{};
    if (a.bias != nullptr) bias = load_floats<V>(a.bias + j);
    for (int i = 0; i < V; ++i) values.at[i] = fma((values.at[i] - mean) * rstd, weight.at[i], bias.at[i]);
    store_floats(y + j, values);
  }
}

template <class T, int V>
GPU_FN void input_gradient(const LayerNormDxArgs& a) {
  GPU_SHARED(Room, room);
  const int64_t row = block_index();
  const T* x = static_cast<const T*>(a.x) + row * a.n;
  const T* dy = static_cast<const T*>(a.dy) + row * a.n;
  T* dx = static_cast<T*>(a.dx) + row * a.n;
  const auto count = static_cast<float>(a.n);
  const float mean = a.mean[row];
  const float rstd = a.rstd[row];
  float gradients = 0;
  float products = 0;
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    const auto of_x = load_floats<V>(x + j);
    const auto of_dy = load_floats<V>(dy + j);
    const auto weight = load_floats<V>(a.weight + j);
    for (int i = 0; i < V; ++i) {
      const float g = of_dy.at[i] * weight.at[i];
      gradients += g;
      products = fma(g, of_x.at[i] - mean, products);
    }
  }
  const float constant = block_sum<threads>(gradients, room.sums) / count;
  const float pull = rstd * rstd * (block_sum<threads>(products, room.sums) / count);
  for (int64_t j = thread_index() * V; j < a.n; j += threads * V) {
    const auto of_x = load_floats<V>(x + j);
    const auto of_dy = load_floats<V>(dy + j);
    const auto weight = load_floats<V>(a.weight + j);
    Floats<V> result{};
    if (a.accumulate) result = load_floats<V>(dx + j);
    for (int i = 0; i < V; ++i) {
      result.at[i] += (of_dy.at[i] * weight.at[i] - constant - (of_x.at[i] - mean) * pull) * rstd;
    }
    store_floats(dx + j, result);
  }
}

template <class T>
GPU_FN void weight_gradient(const LayerNormDweightArgs& a) {
  const int64_t j = static_cast<int64_t>(block_index()) * threads + thread_index();
  if (j >= a.n) return;
  const int64_t begin = block_index_y() * a.rows_a_block;
  const int64_t end = begin + a.rows_a_block < a.rows ? begin + a.rows_a_block : a.rows;
  float products = 0;
  float sum = 0;
  for (int64_t t = begin; t < end; ++t) {
    const float dy = to_float(static_cast<const T*>(a.dy)[t * a.n + j]);
    const float x = to_float(static_cast<const T*>(a.x)[t * a.n + j]);
    products = fma(dy, (x - a.mean[t]) * a.rstd[t], products);
    sum += dy;
  }
  a.sums[block_index_y() * a.n + j] = products;
  a.bias_sums[block_index_y() * a.n + j] = sum;
}

}  // namespace

GPU_KERNEL_BODY_PACKS(layer_norm, LayerNormArgs, forward)
GPU_KERNEL_BODY_PACKS(layer_norm_dx, LayerNormDxArgs, input_gradient)
GPU_KERNEL_BODY_TYPES(layer_norm_dweight, LayerNormDweightArgs, weight_gradient)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/column_sums.h"
#include "backend/gpu/launch.h"
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
  if (dweight || dbias) {  // first: dx may be dy
    const Arena::Scope scope(context.scratch);
    const int64_t blocks = blocks_of(rows, ops::layer_norm_block);
    auto* sums = static_cast<float*>(context.scratch.take_bytes(ops::layer_norm_bytes(rows, n)));
    float* bias_sums = sums + blocks * n;
    launch(context, of_type(layer_norm_dweight, x.dtype), {blocks_of(n, 256), blocks},
           {sums, bias_sums, dy.data, x.data, mean.as<float>(), rstd.as<float>(), rows, n, ops::layer_norm_block});
    if (dweight) sum_rows(context, dweight.as<float>(), sums, blocks, n, attributes.accumulate_dweight);
    if (dbias) sum_rows(context, dbias.as<float>(), bias_sums, blocks, n, attributes.accumulate_dweight);
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
