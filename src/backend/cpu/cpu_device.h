// The CPU as a device, and its ops.
#pragma once

#include <memory>

#include "ops/registry.h"
#include "tensor/device.h"

namespace ingot::cpu {

// The instruction-set level that kernels are compiled for. A later one includes the earlier.
// avx512: F, BW, DQ, VL, VNNI and BF16; amx: also AMX's tiles of bf16, for matrix products alone.
enum class Isa { plain, avx2, avx512, amx };

const char* name(Isa isa);
// The best level that this machine and this build have.
Isa best_isa();
// Whether the processor has AMX and the system (a container, an old kernel) does not let this process use it.
bool amx_is_refused();

// The host's memory and cores. `arch()` names the level, for instance "avx512".
std::unique_ptr<Device> make_device();

// Adds the CPU implementations of every op, best first: amx, avx512_bf16 and onednn where they serve, then this
// machine's levels from best_isa() down to plain, then the double-precision reference.
void register_ops(ops::Registry& registry);

// Whether there are instructions for products of bf16; without them both dtypes have the same arithmetic.
bool has_bf16_products();

// FLOP/s over all threads.
struct ProductRates {
  double arithmetic;  // register loops: fused multiply-adds of f32, products of bf16 tiles or dot products where the
                      // machine has them; at least `matmul`
  double matmul;      // what this program's matmul reaches on a 2048-cube
};
// Of f32 or bf16: the best of several short rounds, measured for about `seconds` in all.
ProductRates measure_products(ops::Context& context, DType dtype, double seconds);
// Bytes/s read from memory over all threads, measured for about `seconds`.
double measure_read(ops::Context& context, double seconds);

}  // namespace ingot::cpu
