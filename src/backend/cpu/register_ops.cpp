#include "backend/cpu/ops.h"

namespace ingot::cpu {

void register_ops(ops::Registry& registry, Levels levels) {
  register_elementwise(registry, levels);
}

void register_ops(ops::Registry& registry) { register_ops(registry, machine_levels()); }

}  // namespace ingot::cpu
