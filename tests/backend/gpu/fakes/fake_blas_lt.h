// Shared by the stand-ins for cuBLASLt and hipBLASLt: their objects, and what a call must meet. Written from the
// vendors' documentation of their matmul functions, not from our binding.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/backend/gpu/fakes/driver.h"
#include "tests/backend/gpu/fakes/gemm.h"
#include "tests/backend/gpu/fakes/live_objects.h"

namespace fake {

struct Handle {
  int device;
};

struct Product {
  int compute_type, scale_type;
  std::map<int, int32_t> attributes;
  std::map<int, const float*> scales;
  const void* bias = nullptr;
};

struct Preference {
  std::map<int, uint64_t> attributes;
};

// The numbers of a vendor's attributes: those that are pointers, and those of the epilogue.
struct Attributes {
  int a_scales, b_scales, bias, bias_type, epilogue;
};

// Attributes have 4 bytes, pointers 8. With INGOT_FAKE_OLD_BLAS_LT in the environment this is a library without scale
// modes (attributes 31 and 32).
inline bool set_attribute(Product& product, int attribute, const void* value, size_t bytes, const Attributes& of) {
  const bool scales = attribute == of.a_scales || attribute == of.b_scales;
  if (bytes != (scales || attribute == of.bias ? sizeof(void*) : sizeof(int32_t))) return false;
  if ((attribute == 31 || attribute == 32) && std::getenv("INGOT_FAKE_OLD_BLAS_LT") != nullptr) return false;
  if (scales) {
    std::memcpy(&product.scales[attribute], value, bytes);
  } else if (attribute == of.bias) {
    std::memcpy(&product.bias, value, bytes);
  } else {
    std::memcpy(&product.attributes[attribute], value, bytes);
  }
  return true;
}

// Of the epilogues only 4 exists here, BIAS: a vector of the type of d, aligned, with an element for each row of d.
inline bool epilogue_fits(const Product& product, const Matrix& d, const Attributes& of) {
  const auto epilogue = product.attributes.find(of.epilogue);
  if (epilogue == product.attributes.end()) return product.bias == nullptr;
  const auto type = product.attributes.find(of.bias_type);
  return epilogue->second == 4 && product.bias != nullptr && reinterpret_cast<uintptr_t>(product.bias) % 16 == 0 &&
         type != product.attributes.end() && type->second == d.type;
}

// The library's objects. Those of a vendor's own types derive from ours.
template <class ProductType, class MatrixType>
struct BlasLtObjects {
  LiveObjects<Handle> handles;
  LiveObjects<ProductType> products;
  LiveObjects<MatrixType> matrices;
  LiveObjects<Preference> preferences;

  // A handle for the current device; null where the driver has none, or allows no allocation now.
  Handle* make_handle() {
    const int device = current_device();
    if (device < 0 || !may_allocate("a library's handle is made")) return nullptr;
    return handles.add({device});
  }
  bool has_handle(const void* handle) const {
    return handles.has(handle) || misuse("%p is no handle, or was destroyed", handle);
  }
  // Whether these are objects that live.
  bool have(const void* handle, const void* product, std::initializer_list<const void*> layouts) const {
    if (!has_handle(handle)) return false;
    if (!products.has(product)) return misuse("%p is no description of a gemm, or was destroyed", product);
    for (const void* layout : layouts) {
      if (!matrices.has(layout)) return misuse("%p is no matrix layout, or was destroyed", layout);
    }
    return true;
  }
};

// Whether the shapes match and no leading dimension is too small.
inline bool fits(const Matrix& a, bool transpose_a, const Matrix& b, bool transpose_b, const Matrix& c,
                 const Matrix& d) {
  for (const Matrix* matrix : {&a, &b, &c, &d}) {
    if (matrix->rows == 0 || matrix->columns == 0) return misuse("a matrix is empty");
    if (matrix->ld < static_cast<int64_t>(matrix->rows))
      return misuse("a leading dimension of %lld for %llu rows", static_cast<long long>(matrix->ld),
                    static_cast<unsigned long long>(matrix->rows));
  }
  const uint64_t m = transpose_a ? a.columns : a.rows;
  const uint64_t k = transpose_a ? a.rows : a.columns;
  const uint64_t other_k = transpose_b ? b.columns : b.rows;
  const uint64_t n = transpose_b ? b.rows : b.columns;
  if (is_fp8(a.type) && (!transpose_a || transpose_b || k % 16 != 0)) return false;  // fp8 matmuls are TN only
  return (k == other_k && m == d.rows && n == d.columns && m == c.rows && n == c.columns && c.type == d.type) ||
         misuse("the matrices of a gemm do not fit each other");
}

// Whether every leading dimension and pointer is a multiple of 16 bytes.
inline bool aligned(const Matrix& matrix) { return static_cast<uint64_t>(matrix.ld) * bytes_of(matrix.type) % 16 == 0; }
inline bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// Whether a gemm that needs `needed` bytes of workspace was given them, aligned to 256 bytes, and none where it needs
// none.
inline bool takes_workspace(size_t needed, const void* workspace, size_t bytes) {
  if (needed == 0 ? workspace == nullptr && bytes == 0
                  : bytes >= needed && workspace != nullptr && reinterpret_cast<uintptr_t>(workspace) % 256 == 0)
    return true;
  return misuse("a gemm that needs a workspace of %zu bytes is given %zu at %p", needed, bytes, workspace);
}

// Whether the memory of the gemm is as the documentation requires of calls with such an algorithm.
inline bool is_aligned(const Gemm& gemm) {
  for (const Matrix* matrix : {&gemm.a, &gemm.b, &gemm.c, &gemm.d}) {
    if (!aligned(*matrix)) return misuse("a leading dimension is no multiple of 16 bytes");
  }
  for (const void* data : {gemm.a_data, gemm.b_data, gemm.c_data, static_cast<const void*>(gemm.d_data)}) {
    if (!aligned(data)) return misuse("%p is not aligned to 16 bytes", data);
  }
  return true;
}

// Appends the gemm to the stream.
inline bool enqueue(int device, void* stream, const Gemm& gemm) {
  std::vector<DeviceMemory> memory = {{gemm.a_data, bytes_of(gemm.a)},
                                      {gemm.b_data, bytes_of(gemm.b)},
                                      {gemm.c_data, bytes_of(gemm.c)},
                                      {gemm.d_data, bytes_of(gemm.d)}};
  if (gemm.a_scales != nullptr) memory.push_back({gemm.a_scales, gemm.d.rows * sizeof(float)});
  if (gemm.b_scales != nullptr) memory.push_back({gemm.b_scales, gemm.d.columns * sizeof(float)});
  if (gemm.bias != nullptr) memory.push_back({gemm.bias, gemm.d.rows * bytes_of(gemm.d.type)});
  if (gemm.workspace_bytes > 0) memory.push_back({gemm.workspace, gemm.workspace_bytes});
  return launch(device, stream, gemm, memory);
}

}  // namespace fake
