// Registration of the GPU ops, one function per group of ops; `kind` is cuda, hip or sim.
#pragma once

#include "ops/registry.h"

namespace ingot::gpu {

void register_attention_paged(ops::Registry& registry, DeviceKind kind);
void register_attention_mma(ops::Registry& registry, DeviceKind kind);
void register_attention(ops::Registry& registry, DeviceKind kind);
void register_activation(ops::Registry& registry, DeviceKind kind);
void register_adamw(ops::Registry& registry, DeviceKind kind);
void register_columns(ops::Registry& registry, DeviceKind kind);
void register_cross_entropy(ops::Registry& registry, DeviceKind kind);
void register_dequantize(ops::Registry& registry, DeviceKind kind);
void register_dropout(ops::Registry& registry, DeviceKind kind);
void register_elementwise(ops::Registry& registry, DeviceKind kind);
void register_embedding(ops::Registry& registry, DeviceKind kind);
void register_fixed_sum(ops::Registry& registry, DeviceKind kind);
void register_glu(ops::Registry& registry, DeviceKind kind);
void register_kv_store(ops::Registry& registry, DeviceKind kind);
void register_layer_norm(ops::Registry& registry, DeviceKind kind);
void register_skinny_gemm(ops::Registry& registry, DeviceKind kind);
void register_lora(ops::Registry& registry, DeviceKind kind);
void register_matmul(ops::Registry& registry, DeviceKind kind);
void register_vendor_attention(ops::Registry& registry, DeviceKind kind);   // cuda only; no effect otherwise
void register_vendor_matmul(ops::Registry& registry, DeviceKind kind);      // no effect for a simulated device
void register_vendor_linear_fp8(ops::Registry& registry, DeviceKind kind);  // no effect for a simulated device
void register_moe(ops::Registry& registry, DeviceKind kind);
void register_linear_fp8(ops::Registry& registry, DeviceKind kind);
void register_quantize_fp8(ops::Registry& registry, DeviceKind kind);
void register_rms_norm(ops::Registry& registry, DeviceKind kind);
void register_rope(ops::Registry& registry, DeviceKind kind);
void register_sampling(ops::Registry& registry, DeviceKind kind);

// Calls all of the above.
void register_ops(ops::Registry& registry, DeviceKind kind);

}  // namespace ingot::gpu
