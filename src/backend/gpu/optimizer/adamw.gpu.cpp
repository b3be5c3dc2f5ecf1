#include "backend/gpu/optimizer/update.h"

namespace ingot::gpu {

struct AdamwArgs {
  void* master;
  void* moment1;
  void* moment2;
  void* weight;  // bf16; may be null
  const float* gradient;
  bool master_bf16;
  bool moment1_bf16;
  bool moment2_bf16;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float epsilon;
  float decay;      // 1 - lr * weight decay
  float step_size;  // lr / (1 - beta1^step)
  float root;       // sqrt(1 - beta2^step)
  float gradient_scale;
  const double* decision;  // output of decide_update; may be null
  int64_t n;
};

// With 8-bit moments in place of update.moment1 and update.moment2.
struct AdamwBlockwiseArgs {
  AdamwArgs update;
  BlockwiseState moment1;
  BlockwiseState moment2;
};

// Block b sums the squares of the block_elements elements from b * block_elements on.
struct SquareSumsArgs {
  double* sums;
  const float* x;
  int64_t n;
  int64_t block_elements;
};

struct SumInOrderArgs {
  double* sum;
  const double* parts;
  int64_t n;
  bool accumulate;
};

struct DecideArgs {
  double* decision;  // in: [0] the sum of squares; out: [0] the norm, [1] the gradient's scale, [2] 1: skip the update
  const double* loss_squares;
  double loss_tokens;
  double max_norm;
};

}  // namespace ingot::gpu

GPU_KERNEL(adamw, AdamwArgs, 256)
GPU_KERNEL(adamw_packed, AdamwArgs, 256)
GPU_KERNEL(adamw_blockwise, AdamwBlockwiseArgs, 256)
GPU_KERNEL(square_sums, SquareSumsArgs, 256)
GPU_KERNEL(square_sums_packed, SquareSumsArgs, 256)
GPU_KERNEL(sum_in_order, SumInOrderArgs, 256)
GPU_KERNEL(decide_update, DecideArgs, 64)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

// Moments and masters of the elements from `at` on.
template <int V>
struct Adamw {
  Floats<V> m, v, master;
};

template <int V>
GPU_FN void update_elements(const AdamwArgs& a, const Gradients<V>& gradient, Adamw<V>& state) {
  for (int i = 0; i < V; ++i) {
    const float g = gradient.sum.at[i] * gradient.scale;
    state.m.at[i] = state.m.at[i] * a.beta1 + g * a.one_minus_beta1;
    state.v.at[i] = state.v.at[i] * a.beta2 + g * g * a.one_minus_beta2;
    const float step = state.m.at[i] * a.step_size / (square_root(state.v.at[i]) / a.root + a.epsilon);
    state.master.at[i] = state.master.at[i] * a.decay - step;
  }
}

template <int V>
GPU_FN void update(const AdamwArgs& a) {
  const int64_t at = first_element<V>();
  if (at >= a.n || is_skipped(a.decision)) return;
  const auto gradient = load_gradients<V>(a, at);
  Adamw<V> state{load_either<V>(a.moment1, a.moment1_bf16, at), load_either<V>(a.moment2, a.moment2_bf16, at),
                 load_either<V>(a.master, a.master_bf16, at)};
  update_elements(a, gradient, state);
  store_either(a.moment1, a.moment1_bf16, at, state.m);
  store_either(a.moment2, a.moment2_bf16, at, state.v);
  store_masters({a.master, a.master_bf16}, a.weight, at, state.master);
}

GPU_FN void update_blockwise(const AdamwBlockwiseArgs& args) {
  const AdamwArgs& a = args.update;
  if (is_skipped(a.decision)) return;
  GPU_SHARED(EncodeStorage, shared);
  const int64_t at = first_element<1>();
  Adamw<1> state = {};
  if (at < a.n) {
    const auto gradient = load_gradients<1>(a, at);
    state = {decode(args.moment1, at), decode(args.moment2, at), load_either<1>(a.master, a.master_bf16, at)};
    update_elements(a, gradient, state);
    store_masters({a.master, a.master_bf16}, a.weight, at, state.master);
  }
  block_barrier();  // all threads have read the scales
  encode(shared, args.moment1, state.m.at[0], at, a.n);
  encode(shared, args.moment2, state.v.at[0], at, a.n);
}

struct SquaresStorage {
  double of_threads[256];
  double of_eight_threads[32];
};

// The order of the sum does not depend on `packed`: a thread adds four adjacent elements at a time, then eight threads'
// sums are added, then these, in order.
template <bool packed>
GPU_FN void sum_of_squares(const SquareSumsArgs& a) {
  GPU_SHARED(SquaresStorage, shared);
  const int thread = thread_index();
  const int64_t begin = block_index() * a.block_elements;
  const int64_t end = begin + a.block_elements < a.n ? begin + a.block_elements : a.n;
  double sum = 0;
  for (int64_t at = begin + 4 * thread; at < end; at += 4 * 256) {
    Floats<4> values;
    if constexpr (packed) {
      values = load_floats<4>(a.x + at);
    } else {
      for (int i = 0; i < 4; ++i) values.at[i] = at + i < end ? a.x[at + i] : 0.0F;
    }
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(values.at[i]) * static_cast<double>(values.at[i]);
  }
  shared.of_threads[thread] = sum;
  block_barrier();
  if (thread < 32) {
    sum = 0;
    for (int i = 0; i < 8; ++i) sum += shared.of_threads[8 * thread + i];
    shared.of_eight_threads[thread] = sum;
  }
  block_barrier();
  if (thread > 0) return;
  sum = 0;
  for (int i = 0; i < 32; ++i) sum += shared.of_eight_threads[i];
  a.sums[block_index()] = sum;
}

struct PartsStorage {
  double parts[256];
};

GPU_FN void sum_parts(const SumInOrderArgs& a) {
  GPU_SHARED(PartsStorage, shared);
  const int thread = thread_index();
  double sum = 0;
  for (int64_t begin = 0; begin < a.n; begin += 256) {
    if (begin + thread < a.n) shared.parts[thread] = a.parts[begin + thread];
    block_barrier();
    const auto count = static_cast<int>(a.n - begin < 256 ? a.n - begin : 256);
    if (thread == 0) {
      for (int i = 0; i < count; ++i) sum += shared.parts[i];
    }
    block_barrier();
  }
  if (thread == 0) *a.sum = a.accumulate ? *a.sum + sum : sum;
}

GPU_FN bool finite(double x) { return x - x == 0; }

GPU_FN void decide(const DecideArgs& a) {
  if (thread_index() != 0) return;
  const double norm = square_root(a.decision[0]) / a.loss_tokens;
  const double clip = a.max_norm / (norm + 1e-6);
  a.decision[0] = norm;
  a.decision[1] = (a.max_norm > 0 && clip < 1 ? clip : 1.0) / a.loss_tokens;
  if (!finite(norm) || !finite(*a.loss_squares)) a.decision[2] = 1;
}

}  // namespace

GPU_KERNEL_BODY(adamw, AdamwArgs) { update<1>(a); }
GPU_KERNEL_BODY(adamw_packed, AdamwArgs) { update<4>(a); }
GPU_KERNEL_BODY(adamw_blockwise, AdamwBlockwiseArgs) { update_blockwise(a); }
GPU_KERNEL_BODY(square_sums, SquareSumsArgs) { sum_of_squares<false>(a); }
GPU_KERNEL_BODY(square_sums_packed, SquareSumsArgs) { sum_of_squares<true>(a); }
GPU_KERNEL_BODY(sum_in_order, SumInOrderArgs) { sum_parts(a); }
GPU_KERNEL_BODY(decide_update, DecideArgs) { decide(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include <cmath>

#include "backend/gpu/ops.h"
#include "ops/adamw.h"
#include "ops/adamw_bytes.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void run(Context& context, const ops::AdamwState& state, const Tensor& gradient, ops::AdamwAttributes attributes) {
  const auto lr = static_cast<double>(attributes.lr);
  const auto beta1 = static_cast<double>(attributes.beta1);
  const auto beta2 = static_cast<double>(attributes.beta2);
  const auto steps = static_cast<double>(attributes.step);
  const int64_t n = gradient.elements();
  const AdamwArgs args{.master = state.master.data,
                       .moment1 = state.moment1.data,
                       .moment2 = state.moment2.data,
                       .weight = state.weight.data,
                       .gradient = gradient.as<float>(),
                       .master_bf16 = state.master.dtype == DType::bf16,
                       .moment1_bf16 = state.moment1.dtype == DType::bf16,
                       .moment2_bf16 = state.moment2.dtype == DType::bf16,
                       .beta1 = attributes.beta1,
                       .one_minus_beta1 = static_cast<float>(1.0 - beta1),
                       .beta2 = attributes.beta2,
                       .one_minus_beta2 = static_cast<float>(1.0 - beta2),
                       .epsilon = attributes.epsilon,
                       .decay = static_cast<float>(1.0 - lr * static_cast<double>(attributes.weight_decay)),
                       .step_size = static_cast<float>(lr / (1.0 - std::pow(beta1, steps))),
                       .root = static_cast<float>(std::sqrt(1.0 - std::pow(beta2, steps))),
                       .gradient_scale = attributes.gradient_scale,
                       .decision = decision_of(attributes.decision),
                       .n = n};
  if (state.moment1.dtype == DType::u8) {
    launch(context, adamw_blockwise, {ops::blockwise_blocks(n)},
           {args, blockwise_state(state.moment1, state.moment1_scales, true),
            blockwise_state(state.moment2, state.moment2_scales, false)});
    return;
  }
  launch_update(context, adamw, adamw_packed, {gradient, state.master, state.moment1, state.moment2, state.weight},
                args);
}

void run_sum_squares(Context& context, const Tensor& sum, const Tensor& x, bool accumulate) {
  const Arena::Scope scope(context.scratch);
  const int64_t n = x.elements();
  const int64_t blocks = blocks_of(n, ops::sum_squares_block);
  auto* parts = static_cast<double*>(context.scratch.allocate_bytes(ops::sum_squares_bytes(n)));
  launch(context, is_vectorizable(n, {x}) ? square_sums_packed : square_sums, {blocks},
         {parts, x.as<float>(), n, ops::sum_squares_block});
  launch(context, sum_in_order, {1}, {sum.as<double>(), parts, blocks, accumulate});
}

void run_decide_update(Context& context, const Tensor& decision, const Tensor& squares, const Tensor& loss_squares,
                       ops::DecisionAttributes attributes) {
  auto* out = decision.as<double>();
  launch(context, sum_in_order, {1}, {out, squares.as<double>(), squares.elements(), false});
  launch(context, decide_update, {1}, {out, loss_squares.as<double>(), attributes.loss_tokens, attributes.max_norm});
}

}  // namespace

void register_adamw(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Adamw>(kind, "simt", run);
  registry.add<ops::SumSquares>(kind, "simt", run_sum_squares);
  registry.add<ops::DecideUpdate>(kind, "simt", run_decide_update);
}

}  // namespace ingot::gpu
#endif
