// cuBLASLt (names as in its documentation without `cublasLt`), declared here so that no CUDA header is needed.
#include "backend/gpu/runtime/blas_lt.h"
#include "backend/gpu/runtime/library_folders.h"

namespace ingot::gpu {
namespace {

struct CublasLt {
  using Algorithm = LtAlgorithm<64>;  // cublasLtMatmulAlgo_t
  static constexpr const char* name = "cuBLASLt";
  static constexpr const char* prefix = "cublasLt";
  static constexpr int f32 = 0;           // cudaDataType
  static constexpr int bf16 = 14;         // cudaDataType
  static constexpr int f16 = 2;           // cudaDataType
  static constexpr int e4m3 = 28;         // cudaDataType
  static constexpr int e4m3_fnuz = -1;    // does not exist
  static constexpr int compute_f32 = 68;  // cublasComputeType_t: no TF32
  static constexpr int not_transposed = 0;
  static constexpr int transposed = 1;
  static constexpr int transpose_a = 3;    // cublasLtMatmulDescAttributes_t
  static constexpr int transpose_b = 4;    // cublasLtMatmulDescAttributes_t
  static constexpr int a_scales = 17;      // cublasLtMatmulDescAttributes_t
  static constexpr int b_scales = 18;      // cublasLtMatmulDescAttributes_t
  static constexpr int max_workspace = 1;  // cublasLtMatmulPreferenceAttributes_t

  // cublasLtMatmulPreferenceAttributes_t: no reduction scheme; minimum alignment of a, b, c and d in bytes.
  static constexpr LtPreference preferences[] = {{3, 0}, {5, 16}, {6, 16}, {7, 16}, {8, 16}};

  static LibraryNames names() {
    return {"INGOT_CUBLASLT_LIBRARY", {"libcublasLt.so.13", "libcublasLt.so.12"}, nvidia_folders};
  }

  explicit CublasLt(const SharedLibrary& library) {
    library.bind(get_version, "cublasLtGetVersion");
    library.bind(check_algorithm, "cublasLtMatmulAlgoCheck");
    library.bind(configuration, "cublasLtMatmulAlgoConfigGetAttribute");
  }

  // 13.1.0 is 130100, and 12.8.4 is 120804.
  std::string version(const LtFunctions<Algorithm>&) const {
    const size_t version = get_version();
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }

  // Hopper's fp8 instructions accumulate with about 14 bits; the partial sums are added up in fp32 at least every 128
  // elements of k, as long as fast accumulation is not requested (DeepSeek-AI 2024, arXiv 2412.19437, section 3.3.2).
  const char* decline_codes(const Gemm& p) const {
    return p.out == DType::bf16 ? "" : "fp8 accumulation has fewer bits than fp32; supports bf16 results only";
  }

  bool has_no_split_k(const Algorithm& algorithm) const {
    constexpr int split_k = 2;           // cublasLtMatmulAlgoConfigAttributes_t
    constexpr int reduction_scheme = 3;  // cublasLtMatmulAlgoConfigAttributes_t
    int32_t splits = 0;
    uint32_t scheme = 0;
    size_t written = 0;
    return configuration(&algorithm, split_k, &splits, sizeof splits, &written) == 0 && splits <= 1 && splits >= 0 &&
           configuration(&algorithm, reduction_scheme, &scheme, sizeof scheme, &written) == 0 && scheme == 0;
  }

  bool supports(LtHandle handle, LtDescriptor product, LtDescriptor a, LtDescriptor b, LtDescriptor c,
                const Algorithm& algorithm, size_t& workspace_bytes) const {
    LtResult<Algorithm> result{};
    const LtStatus status = check_algorithm(handle, product, a, b, c, c, &algorithm, &result);
    workspace_bytes = result.workspace_bytes;
    return status == 0;
  }

  size_t (*get_version)();
  LtStatus (*check_algorithm)(LtHandle, LtDescriptor, LtDescriptor, LtDescriptor, LtDescriptor, LtDescriptor,
                              const Algorithm*, LtResult<Algorithm>*);
  LtStatus (*configuration)(const Algorithm*, int, void*, size_t, size_t*);
};

}  // namespace

std::unique_ptr<MatmulLibrary> open_cublaslt() { return open_blas_lt<CublasLt>(); }
LibraryInfo info_of_cublaslt() { return info_of_blas_lt<CublasLt>(); }

}  // namespace ingot::gpu
