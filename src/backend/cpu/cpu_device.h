// The CPU device and its ops.
#pragma once

#include <memory>

#include "ops/registry.h"
#include "tensor/device.h"

namespace ingot {
struct WorkspaceBytes;
}

namespace ingot::cpu {

// The instruction-set levels that kernels are compiled for. A later one includes the earlier ones. avx512: F, BW, DQ,
// VL, VNNI and BF16; avx512_fma: the same instructions, but gemms and attention multiply bf16 as fp32 by fused
// multiply-adds, on processors whose bf16 dot products are slower than that; amx: also AMX bf16 tiles, used for gemms
// and attention.
enum class Isa { plain, avx2, avx512, avx512_fma, amx };

const char* name(Isa isa);
// The best level that this machine and this build support, or the one that INGOT_CPU_ISA selects.
Isa best_isa();
// Whether the processor has AMX but the system (a container, an old kernel) does not let this process use it.
bool amx_is_refused();

// The host's memory and cores. `arch()` is the level's name, for instance "avx512".
std::unique_ptr<Device> make_device();

// The workspace that the ops need of their thread pool on a processor of this level: 4 MiB for each thread, and with
// AMX another 24 MiB.
WorkspaceBytes workspace_bytes(Isa isa);

// Adds the CPU implementations of every op, best first: amx, avx512_bf16, avx512_fma and onednn where they apply, then
// the machine's levels from best_isa() down to plain, then the double-precision reference.
void register_ops(ops::Registry& registry);

// Whether the machine has instructions for bf16 dot products; without them bf16 gemms compute in f32.
bool has_bf16_dot_products();

// FLOP/s over all threads.
struct GemmRates {
  double arithmetic;  // register loops: fused multiply-adds of f32; for bf16 also tile products or dot products if the
                      // machine has them, whichever is faster; at least `matmul`
  double matmul;      // what this program's matmul reaches on a 2048-cube
};
// For f32 or bf16: the best of several short rounds, measured for about `seconds` in total.
GemmRates measure_gemm(ops::Context& context, DType dtype, double seconds);
// Bytes/s read from memory over all threads, measured for about `seconds`.
double measure_read(ops::Context& context, double seconds);

}  // namespace ingot::cpu
