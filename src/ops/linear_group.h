// Linear layers with the same input, such as the projections to queries, keys and values, in one op. On CPUs the
// threads are woken once, and the input is rounded to 8 bits once; on GPUs few tokens take one launch, and more of them
// one gemm where the weights lie in memory one after the other.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/matmul.h"
#include "ops/refusal.h"

namespace ingot::ops {

class Registry;

struct LinearGroupAttributes {
  LinearAttributes linear;
  bool int8_activations = false;  // each as linear_int8, else as linear
};

// y[i] [T, out i] = x [T, in] W[i]^T for each of at least one weight (added with `linear.accumulate`), with the same
// bits as `linear` or `linear_int8` for each; with another Invariance than `slices` a vendor's library may sum in
// another order than for each. Scratch: the largest of theirs, or ops/linear_group_bytes.h if that is more. Errors: as
// theirs; internal for different numbers of results and weights.
void linear_group(Context& context, std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights,
                  LinearGroupAttributes attributes);

struct LinearGroup {
  static constexpr const char* name = "linear_group";
  using Signature = void(Context&, std::span<const Tensor>, const Tensor&, std::span<const Weight>,
                         LinearGroupAttributes);
  static OpWork work(std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights,
                     LinearGroupAttributes attributes);
};

// Why one gemm cannot compute the layers of all these weights, as `refuse` says it: they must be of x's type and lie in
// memory one after the other, without gaps.
bool declines_joining(const Tensor& x, std::span<const Weight> weights, Refusal refuse);
// Those weights as one, with the outputs of all.
Weight joined(std::span<const Weight> weights);

// Registers the implementation "joined" for any kind of device: one gemm, whose result gather_columns divides. It
// accepts two or three weights, as declines_joining does.
void add_linear_group_joined(Registry& registry, DeviceKind kind);

// Registers the implementation "apart" for any kind of device: one op after the other. It declines no call, so a
// backend registers its own implementations before it.
void add_linear_group_apart(Registry& registry, DeviceKind kind);

}  // namespace ingot::ops
