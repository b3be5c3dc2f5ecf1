// A cuBLASLt that multiplies on the host. Its heuristic returns algorithms that callers must reject: 1 adds partial
// sums in the result, 2 needs a workspace whatever it was offered, 3 requires at least 16 rows. Algorithm 4 is usable.
// Where split-K is allowed, it first returns 5, which rounds partial sums to the result's type, and 6, which has them
// in the workspace, in fp32, and is usable. For k = 56 there is none, and for k = 20 only 1.
#include "tests/backend/gpu/fakes/fake_blas_lt.h"

namespace {

constexpr int success = 0;
constexpr int invalid_value = 7;
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

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT size_t cublasLtGetVersion() { return 130203; }
EXPORT int cublasLtCreate(void** handle) {
  *handle = new int(0);
  return success;
}
EXPORT int cublasLtDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return success;
}
EXPORT int cublasLtMatmulDescCreate(fake::Product** product, int compute_type, int scale_type) {
  *product = new fake::Product{compute_type, scale_type, {}, {}};
  return compute_type == 68 && scale_type == fake::f32 ? success : invalid_value;
}
EXPORT int cublasLtMatmulDescDestroy(fake::Product* product) {
  delete product;
  return success;
}
EXPORT int cublasLtMatmulDescSetAttribute(fake::Product* product, int attribute, const void* value, size_t bytes) {
  return fake::set_attribute(*product, attribute, value, bytes, attributes) ? success : invalid_value;
}
EXPORT int cublasLtMatrixLayoutCreate(fake::Matrix** matrix, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  *matrix = new fake::Matrix{type, rows, columns, ld};
  return success;
}
EXPORT int cublasLtMatrixLayoutDestroy(fake::Matrix* matrix) {
  delete matrix;
  return success;
}
EXPORT int cublasLtMatmulPreferenceCreate(fake::Preference** preference) {
  *preference = new fake::Preference{};
  return success;
}
EXPORT int cublasLtMatmulPreferenceDestroy(fake::Preference* preference) {
  delete preference;
  return success;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(fake::Preference* preference, int attribute, const void* value,
                                                size_t bytes) {
  if (bytes != (attribute == 1 ? 8U : 4U)) return invalid_value;
  std::memcpy(&preference->attributes[attribute], value, bytes);
  return success;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, fake::Product* product, fake::Matrix* a, fake::Matrix* b,
                                          fake::Matrix* c, fake::Matrix* d, fake::Preference* preference, int asked,
                                          Result* results, int* returned) {
  *returned = 0;
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
    if (*returned == asked || (id >= 5 && schemes == 0) || (id == 6 && workspace_of(algorithm, *d) > max_workspace))
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

EXPORT int cublasLtMatmulAlgoCheck(void*, fake::Product* product, fake::Matrix* a, fake::Matrix* b, fake::Matrix* c,
                                   fake::Matrix* d, const Algorithm* algorithm, Result* result) {
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

EXPORT int cublasLtMatmul(void*, fake::Product* product, const float* alpha, const void* a_data, fake::Matrix* a,
                          const void* b_data, fake::Matrix* b, const float* beta, const void* c_data, fake::Matrix* c,
                          void* d_data, fake::Matrix* d, const Algorithm* algorithm, void* workspace,
                          size_t workspace_bytes, void*) {
  const bool transpose_a = transposes(*product, 3);
  const bool transpose_b = transposes(*product, 4);
  if (!fake::fits(*a, transpose_a, *b, transpose_b, *c, *d)) return invalid_value;
  const uint64_t id = algorithm->data[0];
  if (id != 4 && id != 6 && (id != 3 || d->columns < 16)) return not_supported;
  if (!fake::takes_workspace(workspace_of(*algorithm, *d), workspace, workspace_bytes)) return invalid_value;
  for (const void* data : {a_data, b_data, c_data, static_cast<const void*>(d_data)}) {
    if (!fake::aligned(data)) return invalid_value;
  }
  if (!scales_fit(*product, *a, *b, *d) || !fake::epilogue_fits(*product, *d, attributes)) return invalid_value;
  const bool codes = a->type == fake::e4m3;
  fake::multiply(*alpha, *a, a_data, transpose_a, *b, b_data, transpose_b, *beta, *c, c_data, *d, d_data,
                 codes ? product->scales.at(17) : nullptr, codes ? product->scales.at(18) : nullptr, product->bias,
                 pieces_of(*algorithm));
  return success;
}
