// A cuBLASLt that multiplies on the host. Its heuristic returns algorithms that callers must reject: 1 uses split-K, 2
// needs a workspace, 3 requires at least 16 rows. Algorithm 4 is usable. For k = 56 there is none.
#include "tests/backend/gpu/fakes/fake_blas_lt.h"

namespace {

constexpr int success = 0;
constexpr int invalid_value = 7;
constexpr int not_supported = 15;

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
  return fake::set_attribute(*product, attribute, value, bytes, 17, 18) ? success : invalid_value;
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
  // The caller must have requested no workspace, no split-K and 16-byte alignment.
  if (preference->attributes.at(1) != 0 || preference->attributes.at(3) != 0) return not_supported;
  for (const int attribute : {5, 6, 7, 8}) {
    if (preference->attributes.at(attribute) != 16) return not_supported;
  }
  if ((transpose_a ? a->rows : a->columns) == 56 || !scales_fit(*product, *a, *b, *d)) return not_supported;
  for (uint64_t id = 1; id <= 4 && *returned < asked; ++id) {
    Result& result = results[(*returned)++];
    result = {};
    result.algorithm.data[0] = id;
    result.workspace_bytes = id == 2 ? 1024 : 0;
  }
  return success;
}

EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int attribute, void* value, size_t bytes,
                                                size_t* written) {
  if (bytes != 4 || (attribute != 2 && attribute != 3)) return invalid_value;
  const uint32_t pieces = algorithm->data[0] == 1 ? 4 : 1;
  const uint32_t scheme = algorithm->data[0] == 1 ? 2 : 0;
  std::memcpy(value, attribute == 2 ? &pieces : &scheme, bytes);
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
  result->workspace_bytes = algorithm->data[0] == 2 ? 1024 : 0;
  return success;
}

EXPORT int cublasLtMatmul(void*, fake::Product* product, const float* alpha, const void* a_data, fake::Matrix* a,
                          const void* b_data, fake::Matrix* b, const float* beta, const void* c_data, fake::Matrix* c,
                          void* d_data, fake::Matrix* d, const Algorithm* algorithm, void* workspace,
                          size_t workspace_bytes, void*) {
  const bool transpose_a = transposes(*product, 3);
  const bool transpose_b = transposes(*product, 4);
  if (!fake::fits(*a, transpose_a, *b, transpose_b, *c, *d)) return invalid_value;
  if (algorithm->data[0] != 4 || workspace != nullptr || workspace_bytes != 0) return not_supported;
  for (const void* data : {a_data, b_data, c_data, static_cast<const void*>(d_data)}) {
    if (!fake::aligned(data)) return invalid_value;
  }
  if (!scales_fit(*product, *a, *b, *d)) return invalid_value;
  const bool codes = a->type == fake::e4m3;
  fake::multiply(*alpha, *a, a_data, transpose_a, *b, b_data, transpose_b, *beta, *c, c_data, *d, d_data,
                 codes ? product->scales.at(17) : nullptr, codes ? product->scales.at(18) : nullptr);
  return success;
}
