// Scratch bytes of the gemms. Depends on no tensor code: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Rows of a weight [out, in] that are decoded at a time, at most `out`. `host_visible` (here and below):
// Device::host_visible() of the device, false for GPUs.
int64_t decoded_rows(int64_t out, int64_t in, bool host_visible);

// Upper bound on the bytes that `linear` or `linear_backward_input` of `tokens` x [out, in] takes from the scratch
// arena. `decoded`: the weight must be decoded; otherwise it is used in place. Activations have `activation_bytes`
// bytes per element.
size_t linear_bytes(int64_t tokens, int64_t out, int64_t in, size_t activation_bytes, bool decoded, bool host_visible);

// Bytes that `linear_bias` takes for a layer of `out` outputs whose weight needs no decoding: a bias in their type.
constexpr size_t linear_bias_bytes(int64_t out, size_t activation_bytes, bool host_visible) {
  return host_visible ? 0 : (static_cast<size_t>(out) * activation_bytes + 63) / 64 * 64;  // as Arena::footprint
}

// The columns of a matrix of `columns` with padding (ops/matmul.h).
constexpr int64_t padded_columns(int64_t columns) { return (columns + 7) / 8 * 8; }

// What a GPU has besides as workspace of its vendor's gemm library, once for all that runs on it (GpuDevice::
// library_workspace). Gemms with Invariance::none use it. NVIDIA recommends 32 MiB for Hopper (cuBLAS documentation,
// cublasSetWorkspace).
inline constexpr size_t matmul_library_bytes = size_t{32} << 20;

}  // namespace ingot::ops
