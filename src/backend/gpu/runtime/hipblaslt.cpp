// hipBLASLt of ROCm 6 and later (names as in its documentation without `hipblasLt`), declared here so that no ROCm
// header is needed.
//
// How an algorithm adds is read from the name of its solution, since the library has no function for it. A name
// consists of parameters of Tensile, the generator of its kernels, separated by underscores, each an abbreviation with
// a value (Tensile's documentation, "Kernel parameters"; names in logs of the library):
//   GSU<n>     GlobalSplitU: pieces in which a sum is taken; absent where that is an argument of the kernel
//   GSUA<how>  GlobalSplitUAlgorithm: SB (SingleBuffer): atomic additions to c; MB (MultipleBuffer): fp32 sums in the
//              workspace, which a second kernel adds in a fixed order; MBSK (MultipleBufferSingleKernel): likewise, but
//              the last of the blocks adds them, all from the workspace, from the first piece to the last
//   SK<n>      StreamK: parts of sums by the number of blocks; 0: none
//   MT<m>x<n>x<k>  MacroTile
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

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
  static constexpr int epilogue = 2;       // hipblasLtMatmulDescAttributes_t
  static constexpr int bias = 3;           // hipblasLtMatmulDescAttributes_t
  static constexpr int bias_type = 4;      // hipblasLtMatmulDescAttributes_t
  static constexpr int a_scales = 5;       // hipblasLtMatmulDescAttributes_t
  static constexpr int b_scales = 6;       // hipblasLtMatmulDescAttributes_t
  static constexpr int max_workspace = 1;  // hipblasLtMatmulPreferenceAttributes_t

  // hipblaslt_ext::matmulIsAlgoSupported, which exists as a C++ function only.
  static constexpr const char* is_supported_name =
      "_ZN13hipblaslt_ext21matmulIsAlgoSupportedEPvP27hipblasLtMatmulDescOpaque_tPKvP29hipblasLtMatrixLayoutOpaque_t"
      "S6_S4_S6_S6_R22_hipblasLtMatmulAlgo_tRm";

  // std::string hipblaslt_ext::getSolutionNameFromAlgo(hipblasLtHandle_t, hipblasLtMatmulAlgo_t&), with libstdc++.
  static constexpr const char* solution_name_name =
      "_ZN13hipblaslt_ext23getSolutionNameFromAlgoB5cxx11EPvR22_hipblasLtMatmulAlgo_t";

  static constexpr std::array<LtPreference, 0> preferences(bool) { return {}; }

  // The names in ROCm 7 and 6.
  static LibraryNames names() {
    return {"INGOT_HIPBLASLT_LIBRARY", {"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"}, amd_folders};
  }

  explicit HipblasLt(const SharedLibrary& library) {
    library.bind(get_version, "hipblasLtGetVersion");
    library.bind(is_supported, is_supported_name);
    library.bind(solution_name, solution_name_name);
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

  LtSum sum(LtHandle handle, const Algorithm& algorithm, size_t workspace_bytes) const {
    return sum_of(algorithm_name(handle, algorithm), workspace_bytes);
  }

  bool supports(LtHandle handle, LtDescriptor product, LtDescriptor a, LtDescriptor b, LtDescriptor c,
                const Algorithm& algorithm, LtResult<Algorithm>& result) const {
    const float one = 1;
    Algorithm copy = algorithm;  // the library writes to it
    return is_supported(handle, product, &one, a, b, &one, c, c, copy, result.workspace_bytes) == 0;
  }

  std::string algorithm_name(LtHandle handle, const Algorithm& algorithm) const {
    Algorithm copy = algorithm;
    return solution_name(handle, copy);
  }

  void describe(LtHandle handle, const Algorithm& algorithm, MatmulPlan& plan) const {
    plan.algorithm = algorithm_name(handle, algorithm);
    plan.tile = parameter(plan.algorithm, "MT").value_or("");
    plan.split_k = 0;
    if (const auto pieces = parameter(plan.algorithm, "GSU")) plan.split_k = split_of(*pieces);
  }

 private:
  // Of GlobalSplitU's value.
  static int split_of(std::string_view pieces) {
    int number = 1;
    std::from_chars(pieces.data(), pieces.data() + pieces.size(), number);
    return std::max(1, number);
  }
  // The value of a parameter whose abbreviation is followed by a digit; nothing where the name has none.
  static std::optional<std::string_view> parameter(std::string_view words, std::string_view abbreviation) {
    while (!words.empty()) {
      const std::string_view word = words.substr(0, words.find('_'));
      words.remove_prefix(std::min(words.size(), word.size() + 1));
      if (!word.starts_with(abbreviation)) continue;
      const std::string_view value = word.substr(abbreviation.size());
      if (!value.empty() && value[0] >= '0' && value[0] <= '9') return value;
    }
    return std::nullopt;
  }

  static bool has_word(std::string_view words, std::string_view wanted) {
    while (!words.empty()) {
      const std::string_view word = words.substr(0, words.find('_'));
      words.remove_prefix(std::min(words.size(), word.size() + 1));
      if (word == wanted) return true;
    }
    return false;
  }

  // Where the name does not say the number of pieces, the library chooses it by the shape. A solution of MultipleBuffer
  // then has one piece if it needs no workspace.
  static LtSum sum_of(std::string_view words, size_t workspace_bytes) {
    if (words.empty()) return {.refusal = "has no name that says how it adds sums"};
    if (parameter(words, "SK").value_or("0") != "0")
      return {.refusal = "divides sums by the number of blocks (StreamK)"};
    const std::optional<std::string_view> pieces = parameter(words, "GSU");
    if (pieces == "0" || pieces == "1") return {};
    if (has_word(words, "GSUAMB") || has_word(words, "GSUAMBSK")) {
      if (pieces) return {.order = LtOrder::split};
      return {.order = workspace_bytes > 0 ? LtOrder::split_by_shape : LtOrder::whole};
    }
    if (pieces || has_word(words, "GSUASB")) return {.refusal = "adds the pieces of sums by atomic operations"};
    return {.refusal = "does not say how it adds the pieces of sums"};
  }

  LtStatus (*get_version)(LtHandle, int*);
  LtStatus (*is_supported)(LtHandle, LtDescriptor, const void*, LtDescriptor, LtDescriptor, const void*, LtDescriptor,
                           LtDescriptor, Algorithm&, size_t&);
  std::string (*solution_name)(LtHandle, Algorithm&);
};

}  // namespace

std::unique_ptr<MatmulLibrary> open_hipblaslt() { return open_blas_lt<HipblasLt>(); }
LibraryInfo info_of_hipblaslt() { return info_of_blas_lt<HipblasLt>(); }

}  // namespace ingot::gpu
