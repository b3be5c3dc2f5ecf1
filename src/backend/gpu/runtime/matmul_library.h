// A vendor's gemm library (cuBLASLt, hipBLASLt), loaded on first use.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backend/gpu/gemm/gemm.h"
#include "backend/gpu/runtime/vendor_library.h"
#include "ops/matmul_bytes.h"

namespace ingot::gpu {

// Bytes of GpuDevice::library_workspace, of which a gemm uses any part. Drivers align memory to what libraries want.
inline constexpr size_t matmul_workspace_bytes = ops::matmul_library_bytes;
inline constexpr size_t matmul_workspace_alignment = 256;

// The class of row counts whose gemms share an algorithm with Invariance::none: up to 256 powers of two, so that
// batches of all sizes need few algorithms; multiples of 256 beyond. At least 16: with up to 16 rows, bits never depend
// on their number (ops::LinearAttributes).
inline int64_t row_bucket(int64_t rows) {
  if (rows > 256) return (rows + 255) / 256 * 256;
  int64_t bucket = 16;
  while (bucket < rows) bucket *= 2;
  return bucket;
}

// How a library runs a gemm, for reports.
struct MatmulPlan {
  std::string reason;     // why it declines; the rest is then empty
  std::string algorithm;  // the vendor's identification
  std::string tile;       // "128x256"; empty: unknown
  int split_k = 1;        // pieces in which a sum is taken; 0: unknown
  float waves = 0;        // turns in which the device computes the tiles; 0: unknown
  size_t workspace_bytes = 0;
};

class MatmulLibrary {
 public:
  virtual ~MatmulLibrary() = default;
  virtual bool is_absent() const { return false; }  // declines everything, for one reason
  // Why the library cannot run the gemm; empty if it can; valid until the next call. Of the pointers, only their
  // 16-byte alignment is examined.
  virtual std::string_view decline(const Gemm& product) = 0;
  // Starts a gemm for which `decline` returned an empty reason in `stream` (a CUstream or hipStream_t). `workspace`:
  // matmul_workspace_bytes of device memory, aligned to matmul_workspace_alignment, which only gemms in this stream
  // use.
  virtual void multiply(const Gemm& product, void* workspace, void* stream) = 0;
  // How multiply would run it.
  virtual MatmulPlan describe(const Gemm& product) = 0;
};

// Open the library for the driver's current device. If it cannot be used, the returned object declines every gemm with
// the reason.
std::unique_ptr<MatmulLibrary> open_cublaslt();
std::unique_ptr<MatmulLibrary> open_hipblaslt();

// Facts for `ingot devices`. INGOT_CUBLASLT_LIBRARY and INGOT_HIPBLASLT_LIBRARY name a library file to load instead of
// the default names.
LibraryInfo info_of_cublaslt();
LibraryInfo info_of_hipblaslt();

}  // namespace ingot::gpu
