#include "tests/ops/emulated_amx.h"

#if defined(INGOT_SIMD_X86)

#include "backend/cpu/attention_run.h"
#include "backend/cpu/isa.h"

namespace ingot::cpu::emulated {
extern const AttentionKernels attention_kernels;  // simd/attention.cpp with tests/ops/emulated_tile_registers.h
}

namespace ingot {

void add_emulated_amx(ops::Registry& registry) {
  if (cpu::machine_isa() < cpu::Isa::avx512) return;
  constexpr auto& kernels = cpu::emulated::attention_kernels;
  registry.add<ops::Attention>(DeviceKind::cpu, "emulated_amx", cpu::run_attention<kernels>);
  registry.add<ops::AttentionBackward>(DeviceKind::cpu, "emulated_amx", cpu::run_backward<kernels>);
  registry.add<ops::PagedAttention>(DeviceKind::cpu, "emulated_amx", cpu::run_paged<kernels>);
}

}  // namespace ingot

#else

namespace ingot {

void add_emulated_amx(ops::Registry&) {}

}  // namespace ingot

#endif
