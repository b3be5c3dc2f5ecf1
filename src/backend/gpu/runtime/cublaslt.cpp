// cuBLASLt (names as in its documentation without `cublasLt`), declared here so that no CUDA header is needed.
#include <algorithm>
#include <optional>

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
  static constexpr int epilogue = 7;       // cublasLtMatmulDescAttributes_t
  static constexpr int bias = 8;           // cublasLtMatmulDescAttributes_t
  static constexpr int bias_type = 26;     // cublasLtMatmulDescAttributes_t
  static constexpr int a_scales = 17;      // cublasLtMatmulDescAttributes_t
  static constexpr int b_scales = 18;      // cublasLtMatmulDescAttributes_t
  static constexpr int max_workspace = 1;  // cublasLtMatmulPreferenceAttributes_t

  // cublasLtReductionScheme_t. COMPUTE_TYPE stores the fp32 sums of the pieces in the workspace and adds them in a
  // separate step; the two others add in c, or round the pieces' sums to c's type.
  static constexpr uint32_t unsplit = 0;
  static constexpr uint32_t fp32_pieces = 2;

  // cublasLtMatmulPreferenceAttributes_t: mask of reduction schemes; minimum alignment of a, b, c and d in bytes.
  static constexpr std::array<LtPreference, 5> preferences(bool split) {
    return {{{3, split ? fp32_pieces : unsplit}, {5, 16}, {6, 16}, {7, 16}, {8, 16}}};
  }

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

  // Runs of one library on one kind of GPU give the same bits, but for schemes that are not used here ("Results
  // reproducibility" in its documentation).
  LtSum sum(LtHandle, const Algorithm& algorithm, size_t) const {
    const std::optional<int32_t> splits = attribute(algorithm, Attribute::split_k);
    const std::optional<int32_t> scheme = attribute(algorithm, Attribute::reduction_scheme);
    if (!splits || !scheme || *splits < 0) return {.refusal = "does not say how it adds sums"};
    if (*splits <= 1 && *scheme == static_cast<int32_t>(unsplit)) return {};
    if (*scheme == static_cast<int32_t>(fp32_pieces)) return {.order = LtOrder::split};
    return {.refusal = "adds the pieces of sums in the result"};
  }

  bool supports(LtHandle handle, LtDescriptor product, LtDescriptor a, LtDescriptor b, LtDescriptor c,
                const Algorithm& algorithm, LtResult<Algorithm>& result) const {
    return check_algorithm(handle, product, a, b, c, c, &algorithm, &result) == 0;
  }

  std::string algorithm_name(LtHandle, const Algorithm& algorithm) const {
    return fmt::format("id {}, stages {}", attribute(algorithm, Attribute::id).value_or(-1),
                       attribute(algorithm, Attribute::stages).value_or(-1));
  }

  void describe(LtHandle handle, const Algorithm& algorithm, MatmulPlan& plan) const {
    plan.algorithm = algorithm_name(handle, algorithm);
    plan.tile = tile_name(attribute(algorithm, Attribute::tile).value_or(0));
    plan.split_k = std::max(1, attribute(algorithm, Attribute::split_k).value_or(1));
  }

 private:
  // cublasLtMatmulAlgoConfigAttributes_t, of 4 bytes each.
  enum class Attribute { id = 0, tile = 1, split_k = 2, reduction_scheme = 3, stages = 6 };

  std::optional<int32_t> attribute(const Algorithm& algorithm, Attribute which) const {
    int32_t value = 0;
    size_t written = 0;
    if (configuration(&algorithm, static_cast<int>(which), &value, sizeof value, &written) != 0) return std::nullopt;
    return value;
  }

  // cublasLtMatmulTile_t, whose rows are our columns.
  static std::string tile_name(int32_t tile) {
    static constexpr std::array<const char*, 36> names = {
        "",       "8x8",    "8x16",    "16x8",    "8x32",    "16x16",   "32x8",    "8x64",   "16x32",
        "32x16",  "64x8",   "32x32",   "32x64",   "64x32",   "32x128",  "64x64",   "128x32", "64x128",
        "128x64", "64x256", "128x128", "256x64",  "64x512",  "128x256", "256x128", "512x64", "64x96",
        "96x64",  "96x128", "128x160", "160x128", "192x128", "128x192", "128x96",  "32x256", "256x32"};
    if (tile >= 0 && tile < static_cast<int32_t>(names.size())) return names[static_cast<size_t>(tile)];
    return fmt::format("number {}", tile);
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
