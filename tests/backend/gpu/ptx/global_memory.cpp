#include "tests/backend/gpu/ptx/global_memory.h"

#include "base/error.h"

namespace ingot::ptx {

GlobalMemory::GlobalMemory(uint64_t base, std::vector<std::byte> contents, std::vector<Allocation> allocations)
    : base_(base), contents_(std::move(contents)), allocations_(std::move(allocations)) {
  for (const Allocation& allocation : allocations_) {
    if (allocation.address < base || allocation.address - base + allocation.bytes > contents_.size()) {
      throw_error(ErrorKind::corrupt, "an allocation of {} bytes at {:#x} is outside the memory", allocation.bytes,
                  allocation.address);
    }
  }
}

std::byte* GlobalMemory::at(uint64_t address, size_t bytes) {
  if (!in_last(address, bytes)) {
    for (const Allocation& allocation : allocations_) {
      last_ = allocation;
      if (in_last(address, bytes)) break;
    }
    if (!in_last(address, bytes)) {
      throw_error(ErrorKind::internal, "an access of {} bytes at {:#x} is outside every allocation", bytes, address);
    }
  }
  if (address % bytes != 0) {
    throw_error(ErrorKind::internal, "an access of {} bytes at {:#x} is not aligned", bytes, address);
  }
  return contents_.data() + (address - base_);
}

}  // namespace ingot::ptx
