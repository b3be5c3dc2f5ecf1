#include "backend/cpu/isa.h"

#include <cstdlib>

#include "base/error.h"

namespace ingot::cpu {

const char* name(Isa isa) {
  switch (isa) {
    case Isa::plain: return "plain";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
  }
  return "?";
}

Isa machine_isa() {
#if defined(INGOT_SIMD_X86)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
  if (avx2 && avx512) return Isa::avx512;
  if (avx2) return Isa::avx2;
#endif
  return Isa::plain;
}

Isa best_isa() {
  const Isa machine = machine_isa();
  const char* wanted = std::getenv("INGOT_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return machine;
  for (const Isa isa : {Isa::plain, Isa::avx2, Isa::avx512}) {
    if (std::string_view(wanted) != name(isa)) continue;
    if (isa > machine) {
      throw_hint(ErrorKind::unavailable, fmt::format("unset it, or set it to {} or lower", name(machine)),
                 "INGOT_CPU_ISA asks for {}, which this machine or build does not have", wanted);
    }
    return isa;
  }
  throw_hint(ErrorKind::usage, "use plain, avx2 or avx512", "INGOT_CPU_ISA is '{}'", wanted);
}

Levels machine_levels() {
  const Isa best = best_isa();
  return {best, best == machine_isa()};
}

}  // namespace ingot::cpu
