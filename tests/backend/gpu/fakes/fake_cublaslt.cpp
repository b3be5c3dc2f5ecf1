// A stand-in for cuBLASLt (driver.h). Its heuristic returns algorithms that callers must reject: 1 adds partial
// sums in the result, 2 needs a workspace whatever it was offered, 3 requires at least 16 rows. Algorithm 4 is usable.
// Where split-K is allowed, it first returns 5, which rounds partial sums to the result's type, and 6, which has them
// in the workspace, in fp32, and is usable. For k = 56 there is none, and for k = 20 only 1.
#include "tests/backend/gpu/fakes/fake_blas_lt.h"

namespace {

constexpr int success = 0;
constexpr int not_initialized = 1;
constexpr int invalid_value = 7;
constexpr int execution_failed = 13;
constexpr int not_supported = 15;

// cublasLtReductionScheme_t: INPLACE, COMPUTE_TYPE, OUTPUT_TYPE
constexpr uint32_t in_place = 1;
constexpr uint32_t fp32_sums = 2;
constexpr uint32_t rounded_sums = 4;

struct Algorithm {
  uint64_t data[8];
};
struct Result {
  Algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

uint32_t pieces_of(const Algorithm& algorithm) { return algorithm.data[0] == 1 || algorithm.data[0] >= 5 ? 4 : 1; }
size_t workspace_of(const Algorithm& algorithm, const fake::Matrix& d) {
  if (algorithm.data[0] == 6) return pieces_of(algorithm) * d.rows * d.columns * sizeof(float);
  return algorithm.data[0] == 2 ? 1024 : 0;
}

constexpr fake::Attributes attributes{.a_scales = 17, .b_scales = 18, .bias = 8, .bias_type = 26, .epilogue = 7};

bool transposes(const fake::Product& product, int attribute) {
  const auto at = product.attributes.find(attribute);
  return at != product.attributes.end() && at->second == 1;
}

// Fp8 operands must have row and column scales, other types none.
bool scales_fit(const fake::Product& product, const fake::Matrix& a, const fake::Matrix& b, const fake::Matrix& d) {
  if (a.type != fake::e4m3) return product.scales.empty() && b.type == a.type;
  constexpr int outer_vectors = 3;
  return b.type == fake::e4m3 && d.type == fake::bf16 && product.attributes.at(31) == outer_vectors &&
         product.attributes.at(32) == outer_vectors && product.scales.at(17) != nullptr &&
         product.scales.at(18) != nullptr;
}

fake::BlasLtObjects<fake::Product, fake::Matrix> objects;

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT size_t cublasLtGetVersion() { return 130203; }
EXPORT int cublasLtCreate(void** handle) {
  *handle = objects.make_handle();
  return *handle != nullptr ? success : not_initialized;
}
EXPORT int cublasLtDestroy(void* handle) { return objects.handles.remove(handle) ? success : not_initialized; }
EXPORT int cublasLtMatmulDescCreate(fake::Product** product, int compute_type, int scale_type) {
  *product = objects.products.add({compute_type, scale_type, {}, {}});
  return compute_type == 68 && scale_type == fake::f32 ? success : invalid_value;
}
EXPORT int cublasLtMatmulDescDestroy(fake::Product* product) {
  return objects.products.remove(product) ? success : invalid_value;
}
EXPORT int cublasLtMatmulDescSetAttribute(fake::Product* product, int attribute, const void* value, size_t bytes) {
  if (!objects.products.has(product)) return invalid_value;
  return fake::set_attribute(*product, attribute, value, bytes, attributes) ? success : invalid_value;
}
EXPORT int cublasLtMatrixLayoutCreate(fake::Matrix** matrix, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  *matrix = objects.matrices.add({type, rows, columns, ld});
  return success;
}
EXPORT int cublasLtMatrixLayoutDestroy(fake::Matrix* matrix) {
  return objects.matrices.remove(matrix) ? success : invalid_value;
}
EXPORT int cublasLtMatmulPreferenceCreate(fake::Preference** preference) {
  *preference = objects.preferences.add({});
  return success;
}
EXPORT int cublasLtMatmulPreferenceDestroy(fake::Preference* preference) {
  return objects.preferences.remove(preference) ? success : invalid_value;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(fake::Preference* preference, int attribute, const void* value,
                                                size_t bytes) {
  if (!objects.preferences.has(preference) || bytes != (attribute == 1 ? 8U : 4U)) return invalid_value;
  std::memcpy(&preference->attributes[attribute], value, bytes);
  return success;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void* handle, fake::Product* product, fake::Matrix* a, fake::Matrix* b,
                                          fake::Matrix* c, fake::Matrix* d, fake::Preference* preference, int requested,
                                          Result* results, int* returned) {
  *returned = 0;
  if (!objects.have(handle, product, {a, b, c, d}) || !objects.preferences.has(preference)) return invalid_value;
  const bool transpose_a = transposes(*product, 3);
  if (!fake::fits(*a, transpose_a, *b, transposes(*product, 4), *c, *d)) return invalid_value;
  // The caller must have requested 16-byte alignment, and either no split-K or sums in the compute type.
  const uint64_t max_workspace = preference->attributes.at(1);
  const uint64_t schemes = preference->attributes.at(3);
  if (schemes == 0 ? max_workspace != 0 : schemes != fp32_sums) return not_supported;
  for (const int attribute : {5, 6, 7, 8}) {
    if (preference->attributes.at(attribute) != 16) return not_supported;
  }
  const uint64_t k = transpose_a ? a->rows : a->columns;
  if (k == 56 || !scales_fit(*product, *a, *b, *d) || !fake::epilogue_fits(*product, *d, attributes))
    return not_supported;
  for (const uint64_t id : {5, 6, 1, 2, 3, 4}) {
    if (k == 20 && id != 1) continue;
    const Algorithm algorithm{{id}};
    if (*returned == requested || (id >= 5 && schemes == 0) || (id == 6 && workspace_of(algorithm, *d) > max_workspace))
      continue;
    Result& result = results[(*returned)++];
    result = {};
    result.algorithm = algorithm;
    result.workspace_bytes = workspace_of(algorithm, *d);
  }
  return success;
}

EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int attribute, void* value, size_t bytes,
                                                size_t* written) {
  const auto id = static_cast<uint32_t>(algorithm->data[0]);
  const uint32_t scheme = id == 1 ? in_place : id == 5 ? rounded_sums : id == 6 ? fp32_sums : 0;
  // ID, TILE_ID (128x256), SPLITK_NUM, REDUCTION_SCHEME, STAGES_ID.
  const std::map<int, uint32_t> values{{0, id}, {1, 23}, {2, pieces_of(*algorithm)}, {3, scheme}, {6, 35}};
  if (bytes != 4 || values.count(attribute) == 0) return invalid_value;
  std::memcpy(value, &values.at(attribute), bytes);
  *written = bytes;
  return success;
}

EXPORT int cublasLtMatmulAlgoCheck(void* handle, fake::Product* product, fake::Matrix* a, fake::Matrix* b,
                                   fake::Matrix* c, fake::Matrix* d, const Algorithm* algorithm, Result* result) {
  if (!objects.have(handle, product, {a, b, c, d})) return invalid_value;
  if (!fake::fits(*a, transposes(*product, 3), *b, transposes(*product, 4), *c, *d)) return invalid_value;
  for (const fake::Matrix* matrix : {a, b, c, d}) {
    if (!fake::aligned(*matrix)) return not_supported;
  }
  if (algorithm->data[0] == 3 && d->columns < 16) return not_supported;
  *result = {};
  result->workspace_bytes = workspace_of(*algorithm, *d);
  result->waves = 1.5F;
  return success;
}

EXPORT int cublasLtMatmul(void* handle, fake::Product* product, const float* alpha, const void* a_data, fake::Matrix* a,
                          const void* b_data, fake::Matrix* b, const float* beta, const void* c_data, fake::Matrix* c,
                          void* d_data, fake::Matrix* d, const Algorithm* algorithm, void* workspace,
                          size_t workspace_bytes, void* stream) {
  if (!objects.have(handle, product, {a, b, c, d})) return invalid_value;
  const bool transpose_a = transposes(*product, 3);
  const bool transpose_b = transposes(*product, 4);
  if (!fake::fits(*a, transpose_a, *b, transpose_b, *c, *d)) return invalid_value;
  const uint64_t id = algorithm->data[0];
  if (id != 4 && id != 6 && (id != 3 || d->columns < 16)) return not_supported;
  if (!fake::takes_workspace(workspace_of(*algorithm, *d), workspace, workspace_bytes)) return invalid_value;
  if (!scales_fit(*product, *a, *b, *d) || !fake::epilogue_fits(*product, *d, attributes)) return invalid_value;
  const bool codes = a->type == fake::e4m3;
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
                        .a_scales = codes ? product->scales.at(17) : nullptr,
                        .b_scales = codes ? product->scales.at(18) : nullptr,
                        .bias = product->bias,
                        .pieces = pieces_of(*algorithm),
                        .workspace = workspace,
                        .workspace_bytes = workspace_bytes};
  if (!fake::is_aligned(gemm)) return invalid_value;
  return fake::enqueue(static_cast<fake::Handle*>(handle)->device, stream, gemm) ? success : execution_failed;
}
