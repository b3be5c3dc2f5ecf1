#include "backend/gpu/ops.h"
#include "ops/linear_low_rank.h"

namespace ingot::gpu {

void register_ops(ops::Registry& registry, DeviceKind kind) {
  register_vendor_attention(registry, kind);
  register_attention_mma(registry, kind);
  register_attention_paged(registry, kind);
  register_attention(registry, kind);
  register_activation(registry, kind);
  register_adamw(registry, kind);
  register_columns(registry, kind);
  register_cross_entropy(registry, kind);
  register_quantize_fp8(registry, kind);  // decodes fp8 rows; register_dequantize decodes all other storages
  register_dequantize(registry, kind);
  register_dropout(registry, kind);
  register_elementwise(registry, kind);
  register_embedding(registry, kind);
  register_fixed_sum(registry, kind);
  register_glu(registry, kind);
  register_kv_store(registry, kind);
  register_layer_norm(registry, kind);
  register_vendor_linear_fp8(registry, kind);
  register_linear_fp8(registry, kind);
  register_lora(registry, kind);
  register_skinny_gemm(
      registry, kind);  // reads the weight as stored, for few tokens; must precede the kernels that decode it first
  register_vendor_matmul(registry, kind);
  register_matmul(registry, kind);
  ops::add_low_rank_apart(registry, kind);
  register_moe(registry, kind);
  register_rms_norm(registry, kind);
  register_rope(registry, kind);
  register_sampling(registry, kind);
}

}  // namespace ingot::gpu
