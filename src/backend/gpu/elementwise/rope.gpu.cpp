#include "backend/gpu/elementwise/functions.h"

namespace ingot::gpu {

struct RopeArgs {
  void* y;
  const void* x;
  const int32_t* positions;
  const float* frequencies;
  int heads;
  int head_dim;
  int pairs;
  bool inverse;
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_PACKS(rope, RopeArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int chunk = 256;  // pairs whose sines and cosines are in shared memory at a time

struct SharedStorage {
  float sine[chunk];
  float cosine[chunk];
};

// One block per token: its sines serve all heads.
template <class T, int V>
GPU_FN void rotate(const RopeArgs& a) {
  GPU_SHARED(SharedStorage, shared);
  const int64_t token = block_index();
  const int64_t first = token * a.heads * a.head_dim;
  const T* x = static_cast<const T*>(a.x) + first;
  T* y = static_cast<T*>(a.y) + first;
  const auto position = static_cast<float>(a.positions[token]);
  for (int begin = 0; begin < a.pairs; begin += chunk) {
    const int count = a.pairs - begin < chunk ? a.pairs - begin : chunk;
    for (int i = thread_index(); i < count; i += 256) {
      const SineCosine of_angle = sine_cosine(position * a.frequencies[begin + i]);
      shared.sine[i] = a.inverse ? -of_angle.sine : of_angle.sine;
      shared.cosine[i] = of_angle.cosine;
    }
    block_barrier();
    for (int at = thread_index() * V; at < a.heads * count; at += 256 * V) {
      const int pair = at % count;
      const int64_t low_at = static_cast<int64_t>(at / count) * a.head_dim + begin + pair;
      auto low = load_floats<V>(x + low_at);
      auto high = load_floats<V>(x + low_at + a.pairs);
      for (int i = 0; i < V; ++i) {
        const float s = shared.sine[pair + i];
        const float c = shared.cosine[pair + i];
        const float before = low.at[i];
        low.at[i] = fma(before, c, -(high.at[i] * s));
        high.at[i] = fma(high.at[i], c, before * s);
      }
      store_floats(y + low_at, low);
      store_floats(y + low_at + a.pairs, high);
    }
    block_barrier();
  }
  const int rest = a.head_dim - 2 * a.pairs;
  if (rest == 0 || a.x == a.y) return;
  for (int at = thread_index() * V; at < a.heads * rest; at += 256 * V) {
    const int64_t from = static_cast<int64_t>(at / rest) * a.head_dim + 2 * a.pairs + at % rest;
    store_pack<T, V>(y + from, load_pack<T, V>(x + from));
  }
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_PACKS(rope, RopeArgs, rotate)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include <numeric>

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/rope.h"

namespace ingot::gpu {
namespace {

void run(ops::Context& context, const Tensor& y, const Tensor& x, const Tensor& positions, const Tensor& frequencies,
         ops::RopeAttributes attributes) {
  const int64_t head_dim = x.shape[1] / attributes.heads;
  const int64_t pairs = frequencies.shape[0];
  launch(context, of_rows(rope, std::gcd(pairs, head_dim), {y, x}), {x.shape[0]},
         {y.data, x.data, positions.as<int32_t>(), frequencies.as<float>(), static_cast<int>(attributes.heads),
          static_cast<int>(head_dim), static_cast<int>(pairs), attributes.inverse});
}

}  // namespace

void register_rope(ops::Registry& registry, DeviceKind kind) { registry.add<ops::Rope>(kind, "simt", run); }

}  // namespace ingot::gpu
#endif
