// A stand-in for hipBLASLt (driver.h). Its heuristic returns algorithms that callers must reject: 4 adds partial
// sums to the result by atomic operations, 5 is of StreamK. 1 splits sums of results with more than 64 elements and
// then needs a workspace; 2 requires at least 16 rows; 3 is usable for everything. For k = 56 there is none, and for
// k = 20 only 4.
#include <string>

#include "tests/backend/gpu/fakes/fake_blas_lt.h"

namespace {

constexpr int success = 0;
constexpr int not_initialized = 1;
constexpr int invalid_value = 3;
constexpr int execution_failed = 5;
constexpr int not_supported = 7;

constexpr fake::Attributes attributes{.a_scales = 5, .b_scales = 6, .bias = 3, .bias_type = 4, .epilogue = 2};

bool transposes(const fake::Product& product, int attribute) {
  const auto at = product.attributes.find(attribute);
  return at != product.attributes.end() && at->second == 112;
}

// The type of fp8 operands: gfx942's FNUZ, or OCP's if INGOT_FAKE_GFX950 was in the environment when the last handle
// was made.
int fp8_type = fake::e4m3_fnuz;

// Fp8 operands must have row and column scales, other types none.
bool scales_fit(const fake::Product& product, const fake::Matrix& a, const fake::Matrix& b) {
  if (!fake::is_fp8(a.type)) return product.scales.empty() && b.type == a.type;
  constexpr int outer_vectors = 3;
  return a.type == fp8_type && b.type == a.type && product.attributes.at(31) == outer_vectors &&
         product.attributes.at(32) == outer_vectors && product.scales.at(5) != nullptr &&
         product.scales.at(6) != nullptr;
}

}  // namespace

// The type names of the library: they are part of the mangled name of its one C++ function.
struct hipblasLtMatmulDescOpaque_t : fake::Product {};
struct hipblasLtMatrixLayoutOpaque_t : fake::Matrix {};
struct _hipblasLtMatmulAlgo_t {
  uint8_t data[16];
  size_t max_workspace_bytes;
};
using Product = hipblasLtMatmulDescOpaque_t;
using Matrix = hipblasLtMatrixLayoutOpaque_t;
using Algorithm = _hipblasLtMatmulAlgo_t;
struct Result {
  Algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

namespace {
constexpr uint64_t pieces = 4;  // of a sum that is split

size_t workspace_of(const Algorithm& algorithm, const Matrix& d) {
  return algorithm.data[0] == 1 && d.rows * d.columns > 64 ? pieces * d.rows * d.columns * sizeof(float) : 0;
}

fake::BlasLtObjects<Product, Matrix> objects;
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int hipblasLtGetVersion(void* handle, int* version) {
  if (!objects.has_handle(handle)) return invalid_value;
  *version = 100203;
  return success;
}
EXPORT int hipblasLtCreate(void** handle) {
  fp8_type = std::getenv("INGOT_FAKE_GFX950") != nullptr ? fake::e4m3 : fake::e4m3_fnuz;
  *handle = objects.make_handle();
  return *handle != nullptr ? success : not_initialized;
}
EXPORT int hipblasLtDestroy(void* handle) { return objects.handles.remove(handle) ? success : not_initialized; }
EXPORT int hipblasLtMatmulDescCreate(Product** product, int compute_type, int scale_type) {
  *product = objects.products.add({{compute_type, scale_type, {}, {}}});
  return compute_type == 2 && scale_type == fake::f32 ? success : invalid_value;
}
EXPORT int hipblasLtMatmulDescDestroy(Product* product) {
  return objects.products.remove(product) ? success : invalid_value;
}
EXPORT int hipblasLtMatmulDescSetAttribute(Product* product, int attribute, const void* value, size_t bytes) {
  if (!objects.products.has(product)) return invalid_value;
  return fake::set_attribute(*product, attribute, value, bytes, attributes) ? success : invalid_value;
}
EXPORT int hipblasLtMatrixLayoutCreate(Matrix** matrix, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  *matrix = objects.matrices.add({{type, rows, columns, ld}});
  return success;
}
EXPORT int hipblasLtMatrixLayoutDestroy(Matrix* matrix) {
  return objects.matrices.remove(matrix) ? success : invalid_value;
}
EXPORT int hipblasLtMatmulPreferenceCreate(fake::Preference** preference) {
  *preference = objects.preferences.add({});
  return success;
}
EXPORT int hipblasLtMatmulPreferenceDestroy(fake::Preference* preference) {
  return objects.preferences.remove(preference) ? success : invalid_value;
}
EXPORT int hipblasLtMatmulPreferenceSetAttribute(fake::Preference* preference, int attribute, const void* value,
                                                 size_t bytes) {
  if (!objects.preferences.has(preference) || attribute != 1 || bytes != 8) return invalid_value;
  std::memcpy(&preference->attributes[attribute], value, bytes);
  return success;
}

EXPORT int hipblasLtMatmulAlgoGetHeuristic(void* handle, Product* product, Matrix* a, Matrix* b, Matrix* c, Matrix* d,
                                           fake::Preference* preference, int requested, Result* results,
                                           int* returned) {
  *returned = 0;
  if (!objects.have(handle, product, {a, b, c, d}) || !objects.preferences.has(preference)) return invalid_value;
  const bool transpose_a = transposes(*product, 0);
  if (!fake::fits(*a, transpose_a, *b, transposes(*product, 1), *c, *d)) return invalid_value;
  const uint64_t k = transpose_a ? a->rows : a->columns;
  if (k == 56) return not_supported;
  if (!scales_fit(*product, *a, *b) || !fake::epilogue_fits(*product, *d, attributes)) return not_supported;
  for (const uint8_t id : std::initializer_list<uint8_t>{4, 5, 1, 2, 3}) {
    if (k == 20 && id != 4) continue;
    const Algorithm algorithm{{id}, preference->attributes.at(1)};
    if (*returned == requested || workspace_of(algorithm, *d) > algorithm.max_workspace_bytes) continue;
    Result& result = results[(*returned)++];
    result = {};
    result.algorithm = algorithm;
    result.workspace_bytes = workspace_of(algorithm, *d);
  }
  return success;
}

EXPORT int hipblasLtMatmul(void* handle, Product* product, const float* alpha, const void* a_data, Matrix* a,
                           const void* b_data, Matrix* b, const float* beta, const void* c_data, Matrix* c,
                           void* d_data, Matrix* d, const Algorithm* algorithm, void* workspace, size_t workspace_bytes,
                           void* stream) {
  if (!objects.have(handle, product, {a, b, c, d})) return invalid_value;
  const bool transpose_a = transposes(*product, 0);
  const bool transpose_b = transposes(*product, 1);
  if (!fake::fits(*a, transpose_a, *b, transpose_b, *c, *d)) return invalid_value;
  const uint8_t id = algorithm->data[0];
  if (id != 3 && id != 1 && (id != 2 || d->columns < 16)) return not_supported;
  const size_t needed = workspace_of(*algorithm, *d);
  if (!fake::takes_workspace(needed, workspace, workspace_bytes)) return invalid_value;
  if (!scales_fit(*product, *a, *b) || !fake::epilogue_fits(*product, *d, attributes)) return invalid_value;
  const bool codes = fake::is_fp8(a->type);
  const fake::Gemm gemm{.a = *a,
                        .b = *b,
                        .c = *c,
                        .d = *d,
                        .transpose_a = transpose_a,
                        .transpose_b = transpose_b,
                        .alpha = *alpha,
                        .beta = *beta,
                        .a_data = a_data,
                        .b_data = b_data,
                        .c_data = c_data,
                        .d_data = d_data,
                        .a_scales = codes ? product->scales.at(5) : nullptr,
                        .b_scales = codes ? product->scales.at(6) : nullptr,
                        .bias = product->bias,
                        .pieces = needed > 0 ? pieces : 1,
                        .workspace = workspace,
                        .workspace_bytes = workspace_bytes};
  if (!fake::is_aligned(gemm)) return invalid_value;
  return fake::enqueue(static_cast<fake::Handle*>(handle)->device, stream, gemm) ? success : execution_failed;
}

enum hipblasStatus_t : int {};
namespace hipblaslt_ext {
__attribute__((visibility("default"))) hipblasStatus_t
matmulIsAlgoSupported(void* handle, hipblasLtMatmulDescOpaque_t* product, const void*, hipblasLtMatrixLayoutOpaque_t* a,
                      hipblasLtMatrixLayoutOpaque_t* b, const void*, hipblasLtMatrixLayoutOpaque_t* c,
                      hipblasLtMatrixLayoutOpaque_t* d, _hipblasLtMatmulAlgo_t& algorithm, size_t& workspace_bytes) {
  if (!objects.have(handle, product, {a, b, c, d}) ||
      !fake::fits(*a, transposes(*product, 0), *b, transposes(*product, 1), *c, *d)) {
    return static_cast<hipblasStatus_t>(invalid_value);
  }
  for (const Matrix* matrix : {a, b, c, d}) {
    if (!fake::aligned(*matrix)) return static_cast<hipblasStatus_t>(not_supported);
  }
  if (algorithm.data[0] == 2 && d->columns < 16) return static_cast<hipblasStatus_t>(not_supported);
  workspace_bytes = workspace_of(algorithm, *d);
  algorithm.data[1] = 0xff;  // the library, too, writes to this field
  return static_cast<hipblasStatus_t>(success);
}

// As the library names its solutions: Tensile's parameters, shortened here.
__attribute__((visibility("default"))) std::string getSolutionNameFromAlgo(void* handle,
                                                                           _hipblasLtMatmulAlgo_t& algorithm) {
  static const char* const names[] = {"",
                                      "Cijk_Alik_Bljk_BBS_BH_UserArgs_MT256x128x64_MI16x16x1_GSUAMBSK_SK0_SKXCCM0",
                                      "Cijk_Alik_Bljk_BBS_BH_UserArgs_MT128x128x64_MI16x16x1_GSU1_GSUASB_GSUC0_SK0",
                                      "Cijk_Alik_Bljk_BBS_BH_UserArgs_MT128x96x32_MI16x16x1_GSU1_GSUAMB_GSUC0_SK0",
                                      "Cijk_Alik_Bljk_BBS_BH_UserArgs_MT32x32x64_MI16x16x1_GSU4_GSUASB_GSUC0_SK0",
                                      "Cijk_Alik_Bljk_BBS_BH_UserArgs_MT256x256x64_MI16x16x1_GSU0_SK3_SKFTR0"};
  return objects.has_handle(handle) ? names[algorithm.data[0]] : "";
}
}  // namespace hipblaslt_ext
