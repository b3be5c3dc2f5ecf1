// The registration functions of the CPU's ops: register_NOUN for every noun of ops/op_list.h.
#pragma once

#include "backend/cpu/isa.h"
#include "ops/op_list.h"

namespace ingot::cpu {

#define INGOT_DECLARE(noun) void register_##noun(ops::Registry& registry, Levels levels);
INGOT_OP_NOUNS(INGOT_DECLARE)
#undef INGOT_DECLARE

// Parts of register_attention and of register_matmul.
void register_kv_store(ops::Registry& registry, Levels levels);
void register_skinny_gemm(ops::Registry& registry, Levels levels);
// Parts of register_linear_group.
void register_int8_group(ops::Registry& registry, Levels levels);
void register_skinny_group(ops::Registry& registry, Levels levels);

}  // namespace ingot::cpu
