// One registration function per group of CPU ops.
#pragma once

#include "backend/cpu/isa.h"

namespace ingot::cpu {

void register_skinny_gemm(ops::Registry& registry, Levels levels);
void register_matmul(ops::Registry& registry, Levels levels);
void register_linear_fp8(ops::Registry& registry);
void register_embedding(ops::Registry& registry, Levels levels);
void register_cross_entropy(ops::Registry& registry, Levels levels);
void register_adamw(ops::Registry& registry, Levels levels);
void register_elementwise(ops::Registry& registry, Levels levels);
void register_fixed_sum(ops::Registry& registry, Levels levels);
void register_rms_norm(ops::Registry& registry, Levels levels);
void register_rope(ops::Registry& registry, Levels levels);
void register_layer_norm(ops::Registry& registry, Levels levels);
void register_glu(ops::Registry& registry, Levels levels);
void register_activation(ops::Registry& registry, Levels levels);
void register_columns(ops::Registry& registry, Levels levels);
void register_moe(ops::Registry& registry, Levels levels);
void register_attention(ops::Registry& registry, Levels levels);
void register_kv_store(ops::Registry& registry, Levels levels);
void register_lora(ops::Registry& registry, Levels levels);
void register_sampling(ops::Registry& registry, Levels levels);

}  // namespace ingot::cpu
