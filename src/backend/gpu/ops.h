// Registration of the GPU ops: register_NOUN for every noun of ops/op_list.h; `kind` is cuda, hip or sim.
#pragma once

#include "ops/registry.h"

namespace ingot::gpu {

#define INGOT_DECLARE(noun) void register_##noun(ops::Registry& registry, DeviceKind kind);
INGOT_OP_NOUNS(INGOT_DECLARE)
#undef INGOT_DECLARE

// Calls all of the above.
void register_ops(ops::Registry& registry, DeviceKind kind);

// Parts of register_attention, in order of preference.
void register_vendor_attention(ops::Registry& registry, DeviceKind kind);  // cuda only; no effect otherwise
void register_attention_sm90(ops::Registry& registry, DeviceKind kind);    // no effect for AMD's GPUs
void register_attention_mma(ops::Registry& registry, DeviceKind kind);
void register_attention_paged(ops::Registry& registry, DeviceKind kind);
void register_kv_store(ops::Registry& registry, DeviceKind kind);
// Part of register_elementwise.
void register_dropout(ops::Registry& registry, DeviceKind kind);
// Parts of register_linear_fp8.
void register_quantize_fp8(ops::Registry& registry, DeviceKind kind);
void register_vendor_linear_fp8(ops::Registry& registry, DeviceKind kind);  // no effect for a simulated device
// Part of register_grouped_linear.
void register_grouped_skinny_gemm(ops::Registry& registry, DeviceKind kind);
// Parts of register_matmul, in order of preference.
void register_skinny_gemm(ops::Registry& registry, DeviceKind kind);
void register_vendor_matmul(ops::Registry& registry, DeviceKind kind);   // no effect for a simulated device
void register_dequantize_fp8(ops::Registry& registry, DeviceKind kind);  // fp8 rows
void register_dequantize(ops::Registry& registry, DeviceKind kind);      // all other storages

}  // namespace ingot::gpu
