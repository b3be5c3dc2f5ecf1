#include "backend/gpu/kernels.h"

namespace ingot::gpu {

// The linker names the bounds of the section that GPU_KERNEL_OF fills (target/host.h).
extern "C" {
[[gnu::visibility("hidden")]] extern const KernelInfo* const ingot_kernels_begin[] __asm__("__start_ingot_kernels");
[[gnu::visibility("hidden")]] extern const KernelInfo* const ingot_kernels_end[] __asm__("__stop_ingot_kernels");
}

std::span<const KernelInfo* const> kernels() { return {ingot_kernels_begin, ingot_kernels_end}; }

}  // namespace ingot::gpu
