// How the ops launch kernels. Host code of *.gpu.cpp only.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/kernel.h"
#include "base/error.h"
#include "ops/context.h"

namespace ingot::gpu {

// The context's device, as a GpuDevice: valid in ops that are registered for GPUs.
inline GpuDevice& device_of(const ops::Context& context) { return static_cast<GpuDevice&>(context.device); }

// Does nothing if the grid is empty.
template <class Args>
void launch(ops::Context& context, const Kernel<Args>& kernel, Grid grid, const Args& args,
            size_t dynamic_shared_bytes = 0) {
  if (grid.x > 0 && grid.y > 0) device_of(context).launch(kernel.info, &args, grid, dynamic_shared_bytes);
}

inline int64_t blocks_of(int64_t count, int64_t per_block) { return (count + per_block - 1) / per_block; }

// True if rows of n elements of all these tensors, whose dtypes may differ, can be moved 16 bytes at a time.
inline bool is_vectorizable(int64_t n, std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    const auto elements = static_cast<int64_t>(16 / size_of(tensor.dtype));
    if (n % elements != 0 || reinterpret_cast<uintptr_t>(tensor.data) % 16 != 0) return false;
  }
  return true;
}

// The kernel for elements of `dtype`. ErrorKind::unsupported where there is none.
template <class Args>
const Kernel<Args>& choose(DType dtype, const Kernel<Args>* f32, const Kernel<Args>* bf16, const Kernel<Args>* f16) {
  if (dtype == DType::f32) return *f32;
  if (dtype == DType::bf16) return *bf16;
  if (dtype == DType::f16 && f16->info.name != nullptr) return *f16;
  throw_error(ErrorKind::unsupported, "kernel {} has no variant for {}", f32->info.name, name(dtype));
}

template <class Args>
const Kernel<Args>& of_type(const KernelTypes<Args>& kernels, DType dtype) {
  return choose(dtype, &kernels.f32, &kernels.bf16, &kernels.f16);
}

// The kernel for the first tensor's dtype, packed if the rows of n elements of all tensors allow it. Absent tensors are
// ignored.
template <class Args>
const Kernel<Args>& of_rows(const KernelPacks<Args>& kernels, int64_t n, std::initializer_list<Tensor> tensors) {
  const DType dtype = tensors.begin()->dtype;
  if (!is_vectorizable(n, tensors)) return choose(dtype, &kernels.f32, &kernels.bf16, &kernels.f16);
  return choose(dtype, &kernels.f32_packed, &kernels.bf16_packed, &kernels.f16_packed);
}

}  // namespace ingot::gpu
