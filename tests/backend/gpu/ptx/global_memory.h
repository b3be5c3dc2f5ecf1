// The device memory of a launch: allocations in one range of addresses. It reports reads that race with another block.
//
// Blocks of a launch run in any order and at the same time. What a thread wrote is visible to a thread of another block
// if the write is before it in causality order (PTX ISA, "Memory Consistency Model"): the writer, or another thread of
// its block after a barrier of the block, made an atomic operation with .acq_rel (release), and the reader, or another
// thread of its block before a barrier, made a later one at the same address (acquire). Accesses of a single byte are
// not looked at: the memory knows who wrote two bytes. Writes that race with writes or with earlier reads are not
// reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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

  // From here on accesses are those of a further launch, which sees all writes of those before; of a further block.
  void start_launch();
  void start_block();
  void block_barrier();

  // The bytes of one access, which the memory owns; with the number of the thread in its block. Errors: internal, for
  // an access that is not within one allocation, or whose address is no multiple of its size (PTX ISA, "Addresses as
  // Operands": such an access may fault), and for a race.
  const std::byte* read(uint64_t address, size_t bytes, int thread);
  std::byte* write(uint64_t address, size_t bytes, int thread);
  // Of an atomic operation; `is_ordered`: with .acq_rel.
  std::byte* update(uint64_t address, size_t bytes, int thread, bool is_ordered);
  // Only whether there is such an access.
  void check(uint64_t address, size_t bytes) { at(address, bytes); }

  const std::vector<std::byte>& contents() const { return contents_; }

 private:
  // The number of barriers and ordered atomic operations that the block has made.
  using Moment = uint32_t;
  static constexpr int thread_bits = 10;

  struct Write {
    uint32_t block = 0;  // from 1; 0: none
    uint32_t thread : thread_bits = 0;
    uint32_t moment : 32 - thread_bits = 0;
  };
  struct Release {
    uint32_t block = 0, thread = 0;
    Moment moment = 0, barrier = 0;  // of the operation, and of the block's last barrier before it
  };
  struct Acquire {
    Release of;
    uint32_t thread = 0;
    Moment moment = 0;
  };

  std::byte* at(uint64_t address, size_t bytes);
  bool in_last(uint64_t address, size_t bytes) const {
    return address >= last_.address && address - last_.address + bytes <= last_.bytes;
  }
  bool is_visible(const Write& write, uint32_t thread) const;

  uint64_t base_;
  std::vector<std::byte> contents_;
  std::vector<Allocation> allocations_;
  Allocation last_;  // that of the last access

  std::vector<Write> writes_;                          // the last one of every two bytes
  std::map<uint64_t, std::vector<Release>> releases_;  // by the address of the atomic operation
  // Of the running block.
  uint32_t block_ = 0;
  Moment now_ = 0, barrier_ = 0;
  std::vector<Acquire> acquired_;
};

}  // namespace ingot::ptx
