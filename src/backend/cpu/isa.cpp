#include "backend/cpu/isa.h"

#include <algorithm>

#if defined(INGOT_SIMD_X86)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "backend/cpu/row_order.h"
#include "backend/cpu/workspace.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/processor.h"

namespace ingot::cpu {

#if defined(INGOT_SIMD_X86)
namespace {

enum class Amx { absent, refused, usable };

// Whether the processor has AMX bf16 tiles, and the system lets this process use them: Intel's Software Developer's
// Manual, volume 1, section 18.3 (detection), Linux's Documentation/arch/x86/xstate.rst (permission).
Amx find_amx() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned system_saves = 1U << 27;  // OSXSAVE in ecx of leaf 1: xgetbv may be called
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & system_saves) == 0) return Amx::absent;
  constexpr unsigned amx_bf16 = 1U << 22;
  constexpr unsigned amx_tile = 1U << 24;
  constexpr unsigned both = amx_bf16 | amx_tile;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & both) != both) return Amx::absent;
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned tile_data = 18;
  constexpr unsigned tile_state = 3U << 17;  // configuration and data
  if ((low & tile_state) != tile_state) return Amx::refused;
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM, for all threads of the process
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0 ? Amx::usable : Amx::refused;
}

Amx amx() {
  static const Amx found = find_amx();
  return found;
}

}  // namespace
#endif

bool amx_is_refused() {
#if defined(INGOT_SIMD_X86)
  return amx() == Amx::refused;
#else
  return false;
#endif
}

const char* name(Isa isa) {
  switch (isa) {
    case Isa::plain: return "plain";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_fma: return "avx512_fma";
    case Isa::amx: return "amx";
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
  if (avx2 && avx512 && amx() == Amx::usable) return Isa::amx;
  // Intel's processors multiply vectors of bf16 by dot products at half the rate of fp32 by fused multiply-adds
  // (measured on family 6, model 207: bench/reports/2026-11-28-cpu-intel.md), AMD's at its rate.
  static const bool slow_dot_products = processor_id().vendor == "GenuineIntel";
  if (avx2 && avx512) return slow_dot_products ? Isa::avx512_fma : Isa::avx512;
  if (avx2) return Isa::avx2;
#endif
  return Isa::plain;
}

Isa best_isa() {
  const Isa machine = machine_isa();
  const char* wanted = environment("INGOT_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return machine;
  for (const Isa isa : {Isa::plain, Isa::avx2, Isa::avx512, Isa::avx512_fma, Isa::amx}) {
    if (std::string_view(wanted) != name(isa)) continue;
    const bool same_instructions = isa == Isa::avx512_fma && machine == Isa::avx512;
    if (isa > machine && !same_instructions) {
      throw_hint(ErrorKind::unavailable, fmt::format("unset it, or set it to {} or lower", name(machine)),
                 "INGOT_CPU_ISA is {}, which this machine or build does not support", wanted);
    }
    return isa;
  }
  throw_hint(ErrorKind::usage, "use plain, avx2, avx512, avx512_fma or amx", "INGOT_CPU_ISA '{}' is not known", wanted);
}

WorkspaceBytes workspace_bytes(Isa isa) {
  return {.per_thread = thread_workspace, .shared = isa == Isa::amx ? amx_shared_workspace : 0};
}

Levels machine_levels() {
  const Isa best = best_isa();
  Levels levels{best, std::min(best, Isa::avx512) == std::min(machine_isa(), Isa::avx512)};
  static const std::optional<RowOrder> known = known_row_order(processor_id());
  levels.row_order = known.value_or(levels.row_order);
  return levels;
}

}  // namespace ingot::cpu
