#include "backend/gpu/ops.h"

namespace ingot::gpu {

// CPU only.
void register_linear_int8(ops::Registry&, DeviceKind) {}

void register_ops(ops::Registry& registry, DeviceKind kind) {
#define INGOT_REGISTER(noun) register_##noun(registry, kind);
  INGOT_OP_NOUNS(INGOT_REGISTER)
#undef INGOT_REGISTER
}

}  // namespace ingot::gpu
