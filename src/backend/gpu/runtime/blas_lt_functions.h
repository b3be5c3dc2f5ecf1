// The functions and structs that cuBLASLt and hipBLASLt share (both documented in their vendors' library references).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/shared_library.h"

namespace ingot::gpu {

using LtStatus = int;  // 0: success
using LtHandle = void*;
using LtDescriptor = void*;  // of a matmul, a matrix layout or a preference

// As in both libraries' headers. An algorithm is 64 bytes in cuBLASLt and 24 bytes in hipBLASLt.
template <size_t algorithm_bytes>
struct LtAlgorithm {
  alignas(8) std::array<std::byte, algorithm_bytes> data;
};
template <class Algorithm>
struct LtResult {
  Algorithm algorithm;
  size_t workspace_bytes;
  LtStatus status;
  float waves;
  int reserved[4];
};

template <class Algorithm>
struct LtFunctions {
  LtFunctions(const SharedLibrary& library, const std::string& prefix) {
    const auto bind = [&](auto*& function, const char* name) { library.bind(function, (prefix + name).c_str()); };
    bind(Create, "Create");
    bind(Destroy, "Destroy");
    bind(MatmulDescCreate, "MatmulDescCreate");
    bind(MatmulDescDestroy, "MatmulDescDestroy");
    bind(MatmulDescSetAttribute, "MatmulDescSetAttribute");
    bind(MatrixLayoutCreate, "MatrixLayoutCreate");
    bind(MatrixLayoutDestroy, "MatrixLayoutDestroy");
    bind(MatmulPreferenceCreate, "MatmulPreferenceCreate");
    bind(MatmulPreferenceDestroy, "MatmulPreferenceDestroy");
    bind(MatmulPreferenceSetAttribute, "MatmulPreferenceSetAttribute");
    bind(MatmulAlgoGetHeuristic, "MatmulAlgoGetHeuristic");
    bind(Matmul, "Matmul");
  }

  LtStatus (*Create)(LtHandle*);
  LtStatus (*Destroy)(LtHandle);
  LtStatus (*MatmulDescCreate)(LtDescriptor*, int compute_type, int scale_type);
  LtStatus (*MatmulDescDestroy)(LtDescriptor);
  LtStatus (*MatmulDescSetAttribute)(LtDescriptor, int attribute, const void*, size_t);
  LtStatus (*MatrixLayoutCreate)(LtDescriptor*, int type, uint64_t rows, uint64_t columns, int64_t ld);
  LtStatus (*MatrixLayoutDestroy)(LtDescriptor);
  LtStatus (*MatmulPreferenceCreate)(LtDescriptor*);
  LtStatus (*MatmulPreferenceDestroy)(LtDescriptor);
  LtStatus (*MatmulPreferenceSetAttribute)(LtDescriptor, int attribute, const void*, size_t);
  LtStatus (*MatmulAlgoGetHeuristic)(LtHandle, LtDescriptor, LtDescriptor, LtDescriptor, LtDescriptor, LtDescriptor,
                                     LtDescriptor preference, int requested, LtResult<Algorithm>*, int* returned);
  LtStatus (*Matmul)(LtHandle, LtDescriptor, const void* alpha, const void* a, LtDescriptor, const void* b,
                     LtDescriptor, const void* beta, const void* c, LtDescriptor, void* d, LtDescriptor,
                     const Algorithm*, void* workspace, size_t workspace_bytes, void* stream);
};

struct LtDestroyer {
  LtStatus (*destroy)(LtDescriptor) = nullptr;
  void operator()(LtDescriptor descriptor) const { destroy(descriptor); }
};
using LtOwned = std::unique_ptr<void, LtDestroyer>;

// A preference attribute and its value.
struct LtPreference {
  int attribute;
  uint32_t value;
};

// In what order an algorithm adds up the products of one element.
enum class LtOrder {
  whole,          // in one piece, in an order that depends on k alone
  split,          // in a number of pieces that belongs to the algorithm, whose fp32 sums are added in a fixed order
  split_by_shape  // likewise, but the library chooses the number for each shape
};
struct LtSum {
  LtOrder order = LtOrder::whole;
  // Why it is never used, as the rest of a sentence, empty if it may be: the order may change from run to run, or the
  // sums have fewer bits than fp32.
  std::string_view refusal = {};
};

}  // namespace ingot::gpu
