#include "backend/cpu/ops.h"

namespace ingot::cpu {

void register_ops(ops::Registry& registry, Levels levels) {
  register_skinny_gemm(registry, levels);
  register_matmul(registry, levels);
  register_linear_fp8(registry);
  register_embedding(registry, levels);
  register_cross_entropy(registry, levels);
  register_adamw(registry, levels);
  register_elementwise(registry, levels);
  register_fixed_sum(registry, levels);
  register_rms_norm(registry, levels);
  register_rope(registry, levels);
  register_layer_norm(registry, levels);
  register_glu(registry, levels);
  register_activation(registry, levels);
  register_columns(registry, levels);
  register_moe(registry, levels);
  register_attention(registry, levels);
  register_kv_store(registry, levels);
  register_lora(registry, levels);
  register_sampling(registry, levels);
}

void register_ops(ops::Registry& registry) { register_ops(registry, machine_levels()); }

}  // namespace ingot::cpu
