// Per-thread memory for the packed panels of gemms.
#pragma once

#include <cstdint>

#include "base/host_memory.h"

namespace ingot::cpu {

// Memory that grows on demand and is reused; its contents are undefined. Aligned as HostMemory.
template <class T>
class Panels {
 public:
  // At least `elements` elements, valid until the next call. Errors: resource.
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
