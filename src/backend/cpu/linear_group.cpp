#include "ops/linear_group.h"

#include "backend/cpu/ops.h"
#include "ops/linear_glu.h"
#include "ops/registry.h"

namespace ingot::cpu {

void register_linear_group(ops::Registry& registry, Levels levels) {
  register_int8_group(registry, levels);
  register_skinny_group(registry, levels);
  ops::add_linear_group_apart(registry, DeviceKind::cpu);
}

void register_linear_glu(ops::Registry& registry, Levels) { ops::add_linear_glu_grouped(registry, DeviceKind::cpu); }

}  // namespace ingot::cpu
