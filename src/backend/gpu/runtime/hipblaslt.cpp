// hipBLASLt of ROCm 6 and later (names as in its documentation without `hipblasLt`), declared here so that no ROCm
// header is needed.
#include "backend/gpu/runtime/blas_lt.h"
#include "backend/gpu/runtime/library_folders.h"

namespace ingot::gpu {
namespace {

struct HipblasLt {
  using Algorithm = LtAlgorithm<24>;  // hipblasLtMatmulAlgo_t
  static constexpr const char* name = "hipBLASLt";
  static constexpr const char* prefix = "hipblasLt";
  static constexpr int f32 = 0;           // hipDataType
  static constexpr int bf16 = 14;         // hipDataType
  static constexpr int f16 = 2;           // hipDataType
  static constexpr int e4m3 = 28;         // hipDataType
  static constexpr int e4m3_fnuz = 1000;  // hipDataType
  static constexpr int compute_f32 = 2;   // hipblasComputeType_t: no xf32
  static constexpr int not_transposed = 111;
  static constexpr int transposed = 112;
  static constexpr int transpose_a = 0;    // hipblasLtMatmulDescAttributes_t
  static constexpr int transpose_b = 1;    // hipblasLtMatmulDescAttributes_t
  static constexpr int a_scales = 5;       // hipblasLtMatmulDescAttributes_t
  static constexpr int b_scales = 6;       // hipblasLtMatmulDescAttributes_t
  static constexpr int max_workspace = 1;  // hipblasLtMatmulPreferenceAttributes_t

  // hipblaslt_ext::matmulIsAlgoSupported, which exists as a C++ function only.
  static constexpr const char* is_supported_name =
      "_ZN13hipblaslt_ext21matmulIsAlgoSupportedEPvP27hipblasLtMatmulDescOpaque_tPKvP29hipblasLtMatrixLayoutOpaque_t"
      "S6_S4_S6_S6_R22_hipblasLtMatmulAlgo_tRm";

  static constexpr std::array<LtPreference, 0> preferences{};

  // The names in ROCm 7 and 6.
  static LibraryNames names() {
    return {"INGOT_HIPBLASLT_LIBRARY", {"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"}, amd_folders};
  }

  explicit HipblasLt(const SharedLibrary& library) {
    library.bind(get_version, "hipblasLtGetVersion");
    library.bind(is_supported, is_supported_name);
  }

  std::string version(const LtFunctions<Algorithm>& lt) const {
    LtHandle handle = nullptr;
    if (lt.Create(&handle) != 0) return {};  // fails without a device
    int version = 0;
    const LtStatus status = get_version(handle, &version);
    lt.Destroy(handle);
    if (status != 0) return {};
    return fmt::format("{}.{}.{}", version / 100000, version / 100 % 1000, version % 100);
  }

  const char* decline_codes(const Gemm&) const { return ""; }

  // The library does not report it. Without a workspace its kernels have nowhere to store partial sums.
  bool has_no_split_k(const Algorithm&) const { return true; }

  bool supports(LtHandle handle, LtDescriptor product, LtDescriptor a, LtDescriptor b, LtDescriptor c,
                const Algorithm& algorithm, size_t& workspace_bytes) const {
    const float one = 1;
    Algorithm copy = algorithm;  // the library writes to it
    return is_supported(handle, product, &one, a, b, &one, c, c, copy, workspace_bytes) == 0;
  }

  LtStatus (*get_version)(LtHandle, int*);
  LtStatus (*is_supported)(LtHandle, LtDescriptor, const void*, LtDescriptor, LtDescriptor, const void*, LtDescriptor,
                           LtDescriptor, Algorithm&, size_t&);
};

}  // namespace

std::unique_ptr<MatmulLibrary> open_hipblaslt() { return open_blas_lt<HipblasLt>(); }
LibraryInfo info_of_hipblaslt() { return info_of_blas_lt<HipblasLt>(); }

}  // namespace ingot::gpu
