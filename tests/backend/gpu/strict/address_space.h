// The addresses of allocations: with guard pages between them, and none used twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "tests/backend/gpu/strict/shared_memory.h"

namespace strict {

class AddressSpace {
 public:
  AddressSpace(uintptr_t begin, size_t bytes) : next_(begin + page_bytes), end_(begin + bytes) {}

  struct Allocation {
    size_t bytes = 0;
    int device = 0;
  };

  // Returns 0 when no addresses are left.
  uintptr_t add(size_t bytes, int device) {
    const size_t aligned = (bytes + allocation_alignment - 1) / allocation_alignment * allocation_alignment;
    const size_t whole = (aligned + page_bytes - 1) / page_bytes * page_bytes;
    if (bytes > end_ - next_ || whole + page_bytes > end_ - next_) return 0;
    const uintptr_t data = next_ + whole - aligned;
    next_ += whole + page_bytes;
    live_[data] = {bytes, device};
    return data;
  }
  void remove(uintptr_t data) { live_.erase(data); }

  // The live allocation that begins at `data`; null if there is none.
  const Allocation* at(uintptr_t data) const {
    const auto found = live_.find(data);
    return found == live_.end() ? nullptr : &found->second;
  }
  // The live allocation that contains all of `bytes` from `data` on; null if there is none.
  const Allocation* around(uintptr_t data, size_t bytes) const {
    const auto after = live_.upper_bound(data);
    if (after == live_.begin()) return nullptr;
    const auto& [begin, allocation] = *std::prev(after);
    const size_t offset = data - begin;
    return offset <= allocation.bytes && bytes <= allocation.bytes - offset ? &allocation : nullptr;
  }

 private:
  uintptr_t next_;
  uintptr_t end_;
  std::map<uintptr_t, Allocation> live_;
};

}  // namespace strict
