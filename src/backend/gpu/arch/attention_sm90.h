// What the kernels of flash attention on Hopper share (attention_sm90.gpu.cpp, attention_backward_sm90.gpu.cpp).
#pragma once

#include "backend/gpu/attention/flash.h"
#include "backend/gpu/target/warpgroup.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

inline constexpr int warpgroup_rows = 64;

// To be called when a thread's copies are complete: then the block's products may read them, and nobody reads the
// stages of the tiles before any more.
[[maybe_unused]] GPU_FN void pass_copies_on() {
  async_proxy_fence();
  block_barrier();
}

}  // namespace ingot::gpu::GPU_TARGET

#else

namespace ingot::gpu {

// Whether the kernels cannot run the call; the first tensor has the type of the operands. Code for sm_90a runs on
// compute capability 9.0 alone (PTX ISA, ".target"). Of the simulated devices, that of 32 lanes has warpgroups.
inline bool decline_warpgroups(const ops::Context& context, const ops::AttentionAttributes& attributes,
                               std::initializer_list<Tensor> tensors, ops::Refusal refuse) {
  const std::string arch = context.device.arch();
  if (arch != "sm_90" && arch != "sim32") return refuse("{} has no warpgroup products", arch);
  if (tensors.begin()->dtype != DType::bf16) return refuse("supports bf16 only");
  if (attributes.head_dim > 128) return refuse("head size {} is above 128", attributes.head_dim);
  return decline_tiles(attributes, tensors, refuse);
}

// Part of register_attention_sm90.
void register_attention_backward_sm90(ops::Registry& registry, DeviceKind kind);

}  // namespace ingot::gpu
#endif
