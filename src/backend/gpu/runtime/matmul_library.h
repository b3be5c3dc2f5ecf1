// A vendor's gemm library (cuBLASLt, hipBLASLt), loaded on first use.
#pragma once

#include <memory>
#include <string_view>

#include "backend/gpu/gemm/gemm.h"
#include "backend/gpu/runtime/vendor_library.h"

namespace ingot::gpu {

class MatmulLibrary {
 public:
  virtual ~MatmulLibrary() = default;
  // Why the library cannot run the gemm; empty if it can; valid until the next call. Of the pointers, only their
  // 16-byte alignment is examined.
  virtual std::string_view decline(const Gemm& product) = 0;
  // Starts a gemm for which `decline` returned an empty reason, in `stream` (a CUstream or hipStream_t). It needs no
  // workspace.
  virtual void multiply(const Gemm& product, void* stream) = 0;
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
