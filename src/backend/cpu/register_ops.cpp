#include "backend/cpu/ops.h"

namespace ingot::cpu {

void register_ops(ops::Registry& registry, Levels levels) {
#define INGOT_REGISTER(noun) register_##noun(registry, levels);
  INGOT_OP_NOUNS(INGOT_REGISTER)
#undef INGOT_REGISTER
}

void register_ops(ops::Registry& registry) { register_ops(registry, machine_levels()); }

}  // namespace ingot::cpu
