// A vendor's gemm library (cuBLASLt, hipBLASLt), loaded on first use.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backend/gpu/gemm/gemm.h"
#include "backend/gpu/runtime/vendor_library.h"

namespace ingot::gpu {

// Max bytes of workspace that a gemm uses.
inline constexpr size_t matmul_workspace_bytes = (size_t{32} << 20) - 256;
inline constexpr size_t matmul_workspace_alignment = 256;

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
  // Bytes of workspace that a gemm takes for which `decline` returned an empty reason; at most matmul_workspace_bytes
  // if it may take some, otherwise 0.
  virtual size_t workspace_bytes(const Gemm& product, bool may_take) = 0;
  // Starts such a gemm in `stream` (a CUstream or hipStream_t). `workspace`: as many bytes of device memory as the
  // function above returned for the same arguments, aligned to matmul_workspace_alignment and reserved until the stream
  // has run the gemm; null for 0.
  virtual void multiply(const Gemm& product, bool may_take, void* workspace, void* stream) = 0;
  // How multiply would run it where it may take workspace.
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
