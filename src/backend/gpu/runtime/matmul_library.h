// A vendor's library of matrix products (cuBLASLt, hipBLASLt), bound when it is first asked for.
#pragma once

#include <memory>
#include <string>

#include "backend/gpu/matrix_product.h"
#include "backend/gpu/runtime/vendor_library.h"

namespace ingot::gpu {

class MatmulLibrary {
 public:
  virtual ~MatmulLibrary() = default;
  // Why it does not take the product; empty when it does. Products that differ in their pointers alone, and in those by
  // 16 bytes or more, are answered alike.
  virtual std::string decline(const MatrixProduct& product) = 0;
  // Starts a product that `decline` takes, in the driver's stream. It needs no memory of its own.
  virtual void multiply(const MatrixProduct& product, void* stream) = 0;
};

// For the device that is current in the driver. A library that cannot be used declines every product, saying why.
std::unique_ptr<MatmulLibrary> open_cublaslt();
std::unique_ptr<MatmulLibrary> open_hipblaslt();

// What `ingot devices` says. INGOT_CUBLASLT_LIBRARY and INGOT_HIPBLASLT_LIBRARY name a file in place of those that are
// looked for.
LibraryFacts facts_of_cublaslt();
LibraryFacts facts_of_hipblaslt();

}  // namespace ingot::gpu
