// The gated part of an MLP (ops/glu.h) in one op: both linear layers and the activation. On GPUs few tokens take one
// launch.
#pragma once

#include <array>

#include "ops/glu.h"
#include "ops/linear_group.h"

namespace ingot::ops {

// The two layers, [F, in] each, and memory [T, F] for what they compute, of the same dtype as x.
struct GatedLinears {
  Weight gate, up;
  Tensor gate_memory, up_memory;
  std::array<Tensor, 2> tensors() const { return {gate_memory, up_memory}; }
};

struct LinearGluAttributes {
  LinearGroupAttributes group;  // of both layers; nothing is accumulated
  Activation activation = Activation::silu;
};

// y [T, F] = activation(x Wgate^T) (x Wup^T) of x [T, in], of x's dtype: the bits of linear_group and glu. The memory
// of both layers is undefined afterwards. Scratch and errors: as of these.
void linear_glu(Context& context, const Tensor& y, const Tensor& x, const GatedLinears& layers,
                LinearGluAttributes attributes);

struct LinearGlu {
  static constexpr const char* name = "linear_glu";
  using Signature = void(Context&, const Tensor&, const Tensor&, const GatedLinears&, LinearGluAttributes);
  static OpWork work(const Tensor& y, const Tensor& x, const GatedLinears& layers, LinearGluAttributes attributes);
};

// Registers the implementation "joined" for any kind of device: one gemm and glu_joined. It accepts weights as
// declines_joining does, where the memory of both layers lies one after the other too.
void add_linear_glu_joined(Registry& registry, DeviceKind kind);

// Register implementations for any kind of device, one op after the other: "grouped" with linear_group, "apart" with
// each layer's own op. They decline no call, so a backend registers its own implementations before one of them.
void add_linear_glu_grouped(Registry& registry, DeviceKind kind);
void add_linear_glu_apart(Registry& registry, DeviceKind kind);

}  // namespace ingot::ops
