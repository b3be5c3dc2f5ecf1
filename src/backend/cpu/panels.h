// Memory that a thread keeps for the panels of matrix products.
#pragma once

#include <cstdint>

#include "base/host_memory.h"

namespace ingot::cpu {

// Grows and is kept; contents are undefined. As HostMemory aligns it.
template <class T>
class Panels {
 public:
  // At least so many elements, until the next call. Errors: resource.
  T* of(int64_t elements) {
    const size_t bytes = static_cast<size_t>(elements) * sizeof(T);
    if (bytes > memory_.bytes()) {
      memory_ = {};
      memory_ = HostMemory(bytes, HostMemory::Pages::huge, "the panels of a matrix product");
    }
    return reinterpret_cast<T*>(memory_.data());
  }

 private:
  HostMemory memory_;
};

}  // namespace ingot::cpu
