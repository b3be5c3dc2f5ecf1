// Detection of the machine's instruction set, and helpers that register one implementation per level.
#pragma once

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/simd/skinny_gemm.h"

namespace ingot::cpu {

// The best level that this machine and this build support, ignoring INGOT_CPU_ISA.
Isa machine_isa();

// What `register_ops` registers.
struct Levels {
  Isa best = Isa::plain;  // register the levels up to this one
  bool onednn = false;  // oneDNN selects instructions by itself, up to avx512, so it is left out if `best` is below the
                        // machine's level
  RowOrder row_order = RowOrder::interleaved;
};

// The levels that `register_ops(registry)` uses: best_isa(), oneDNN if that is the machine's level, not counting AMX,
// and the row order that is known for the processor.
Levels machine_levels();

// Like `register_ops(registry)`, for the given levels. Only registers: the machine need not support them.
void register_ops(ops::Registry& registry, Levels levels);

}  // namespace ingot::cpu

// Registers RUN<LEVEL::KERNELS>, an op's implementation with the kernels of one level, for every level up to BEST, best
// first. The remaining argument, if any, is the decline function.
#define INGOT_ADD_LEVEL(registry, best, Op, run, level, kernels, ...) \
  if ((best) >= Isa::level) (registry).add<Op>(DeviceKind::cpu, #level, run<level::kernels> __VA_OPT__(, ) __VA_ARGS__)
#if defined(INGOT_SIMD_X86)
#define INGOT_ADD_LEVELS(registry, best, Op, run, kernels, ...)                           \
  do {                                                                                    \
    INGOT_ADD_LEVEL(registry, best, Op, run, avx512, kernels __VA_OPT__(, ) __VA_ARGS__); \
    INGOT_ADD_LEVEL(registry, best, Op, run, avx2, kernels __VA_OPT__(, ) __VA_ARGS__);   \
    INGOT_ADD_LEVEL(registry, best, Op, run, plain, kernels __VA_OPT__(, ) __VA_ARGS__);  \
  } while (false)
#else
#define INGOT_ADD_LEVELS(registry, best, Op, run, kernels, ...) \
  INGOT_ADD_LEVEL(registry, best, Op, run, plain, kernels __VA_OPT__(, ) __VA_ARGS__)
#endif
