// The device memory of a launch: allocations in one range of addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ingot::ptx {

struct Allocation {
  uint64_t address = 0;
  size_t bytes = 0;
};

class GlobalMemory {
 public:
  // `contents` begins at the address `base`.
  GlobalMemory(uint64_t base, std::vector<std::byte> contents, std::vector<Allocation> allocations);

  // The bytes of one access, which the memory owns. Errors: internal, for an access that is not within one allocation,
  // or whose address is no multiple of its size (PTX ISA, "Addresses as Operands": such an access may fault).
  std::byte* at(uint64_t address, size_t bytes);

  const std::vector<std::byte>& contents() const { return contents_; }

 private:
  bool in_last(uint64_t address, size_t bytes) const {
    return address >= last_.address && address - last_.address + bytes <= last_.bytes;
  }

  uint64_t base_;
  std::vector<std::byte> contents_;
  std::vector<Allocation> allocations_;
  Allocation last_;  // that of the last access
};

}  // namespace ingot::ptx
