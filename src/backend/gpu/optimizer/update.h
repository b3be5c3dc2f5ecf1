// What the kernels of optimizers share: decisions (ops/adamw.h), tensors that are f32 or bf16, and 8-bit states
// (ops/blockwise.h).
#pragma once

#include "backend/gpu/elementwise/elements.h"

namespace ingot::gpu {

// Elements that are f32 or bf16, as masters and optimizer states are.
struct Either {
  void* data;
  bool is_bf16;
};

// An 8-bit state, one thread block for each block of 256 elements.
struct BlockwiseState {
  uint8_t* codes;
  float* scales;
  bool is_signed;
};

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

// Whether decide_update has decided to skip the update. `decision`: its output; may be null.
GPU_FN bool is_skipped(const double* decision) { return decision != nullptr && decision[2] != 0; }
GPU_FN float gradient_scale_of(const double* decision, float otherwise) {
  return decision != nullptr ? static_cast<float>(decision[1]) : otherwise;
}

// Gradients of the elements from `at` on, and what they are multiplied by.
template <int V>
struct Gradients {
  float scale;
  Floats<V> sum;
};
// `args` has gradient, gradient_scale and decision.
template <int V, class Args>
GPU_FN Gradients<V> load_gradients(const Args& args, int64_t at) {
  return {gradient_scale_of(args.decision, args.gradient_scale), load_floats<V>(args.gradient + at)};
}

template <int V>
GPU_FN Floats<V> load_either(const void* data, bool is_bf16, int64_t at) {
  return is_bf16 ? load_floats<V>(static_cast<const Bf16*>(data) + at)
                 : load_floats<V>(static_cast<const float*>(data) + at);
}
template <int V>
GPU_FN void store_either(void* data, bool is_bf16, int64_t at, const Floats<V>& values) {
  if (is_bf16) {
    store_floats(static_cast<Bf16*>(data) + at, values);
  } else {
    store_floats(static_cast<float*>(data) + at, values);
  }
}

template <int V>
GPU_FN Floats<V> load_either(const Either& tensor, int64_t at) {
  return load_either<V>(tensor.data, tensor.is_bf16, at);
}
template <int V>
GPU_FN void store_either(const Either& tensor, int64_t at, const Floats<V>& values) {
  store_either(tensor.data, tensor.is_bf16, at, values);
}

// Stores masters, and their copies in `weight` (bf16; may be null).
template <int V>
GPU_FN void store_masters(const Either& master, void* weight, int64_t at, const Floats<V>& values) {
  store_either(master, at, values);
  if (weight != nullptr) store_floats(static_cast<Bf16*>(weight) + at, values);
}

// The value of a code (tensor/dynamic_map.h), in the same arithmetic as there.
GPU_FN float value_of(int code, bool is_signed) {
  if (code == 255) return 1.0F;
  const int zero = is_signed ? 127 : 0;
  // From 1 on: the index of the cell, counted over all decades in ascending order.
  const int index = code < zero ? zero - code : code - zero;
  if (index == 0) return 0.0F;
  int first_index = 1;
  int cells = is_signed ? 1 : 2;
  double decade_scale = 1e-6;
  while (index >= first_index + cells) {
    first_index += cells;
    cells *= 2;
    decade_scale *= 10;
  }
  const auto value = static_cast<float>(decade_scale * (0.1 + 0.9 * (index - first_index + 0.5) / cells));
  return code < zero ? -value : value;
}

// The thread's element `at`, of this thread block's block.
GPU_FN Floats<1> decode(const BlockwiseState& state, int64_t at) {
  return {{value_of(state.codes[at], state.is_signed) * state.scales[block_index()]}};
}

struct EncodeStorage {
  float map[256];
  float bounds[256];  // bounds[c]: a value above it is nearer to code c + 1 than to code c; 255 are used
  float of_warps[8];
};

// Stores the block's scale and codes. All 256 threads call it, with x of element `at`; only those below n are stored.
GPU_FN void encode(EncodeStorage& shared, const BlockwiseState& state, float x, int64_t at, int64_t n) {
  const int thread = thread_index();
  shared.map[thread] = value_of(thread, state.is_signed);
  if (at >= n) x = 0;
  const float largest = block_max<256>(x < 0 ? -x : x, shared.of_warps);  // has barriers: `map` is complete
  if (thread < 255) {
    shared.bounds[thread] = static_cast<float>(
        0.5 * (static_cast<double>(shared.map[thread]) + static_cast<double>(shared.map[thread + 1])));
  }
  block_barrier();
  if (thread == 0) state.scales[block_index()] = largest;
  if (at >= n) return;
  const float value = x / (largest > 0 ? largest : 1.0F);
  int code = 0;
  for (int step = 128; step > 0; step /= 2) code += value > shared.bounds[code + step - 1] ? step : 0;
  state.codes[at] = static_cast<uint8_t>(code);
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "ops/blockwise.h"

namespace ingot::gpu {

static_assert(ops::blockwise_elements == 256);

inline Either either(const Tensor& tensor) { return {tensor.data, tensor.dtype == DType::bf16}; }

inline BlockwiseState blockwise_state(const Tensor& codes, const Tensor& scales, bool is_signed) {
  return {codes.as<uint8_t>(), scales.as<float>(), is_signed};
}

inline const double* decision_of(const Tensor& decision) { return decision ? decision.as<double>() : nullptr; }

// Launches a kernel for one element a thread, or for four where that is possible for all `tensors`.
template <class Args>
void launch_update(ops::Context& context, const Kernel<Args>& single, const Kernel<Args>& packed,
                   std::initializer_list<Tensor> tensors, const Args& args) {
  const bool vectors = is_vectorizable(args.n, tensors);
  launch(context, vectors ? packed : single, {blocks_of(args.n, vectors ? 4 * 256 : 256)}, args);
}

}  // namespace ingot::gpu
#endif
