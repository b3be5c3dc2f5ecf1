// The shared memory of a block, which reports data races between its threads.
//
// Two accesses to the same bytes by different threads, of which one writes, need a barrier between them: of the block,
// or of the warp if both threads are in it (PTX ISA, "Memory Consistency Model"; bar.sync and bar.warp.sync order
// memory, shfl, vote, ldmatrix and mma do not). Atomic operations do not race with each other. Bytes that an
// asynchronous copy writes belong to the copy until its thread has waited for it ("Asynchronous Operations"). Bytes
// that a matrix product of a warpgroup reads may not be written until its warp has waited for it, and what was written
// before must have been passed on by fence.proxy.async of the writing thread ("Async Proxy").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ingot::ptx {

constexpr int lanes = 32;
constexpr int max_warps = 32;

// A thread of the block; or, for accesses of a whole warp together, all threads of the warp (`lane` is any of them).
struct Accessor {
  int warp = 0;
  int lane = 0;
  bool whole_warp = false;
};

class SharedMemory {
 public:
  // Stores of a single byte are not supported: races are looked for between words of two bytes.
  explicit SharedMemory(size_t bytes);

  // New contents for a block: 0xff bytes (NaN), since a device leaves what it finds.
  void start_block();
  void block_barrier();
  void warp_barrier(int warp);

  // Errors of all: internal, for a race, an access outside, or one that is not aligned to its size.
  const std::byte* read(uint32_t address, size_t bytes, const Accessor& by);
  std::byte* write(uint32_t address, size_t bytes, const Accessor& by);
  std::byte* update(uint32_t address, size_t bytes, const Accessor& by);  // atomically

  // An asynchronous copy: it owns its bytes from start_copy on; finish_copy returns them to be written.
  void start_copy(uint32_t address, size_t bytes, const Accessor& by);
  std::byte* finish_copy(uint32_t address, size_t bytes, const Accessor& by);

  // A matrix product of a warpgroup: it reads its bytes from start_product on; finish_product returns them.
  void start_product(uint32_t address, size_t bytes, const Accessor& by);
  const std::byte* finish_product(uint32_t address, size_t bytes, const Accessor& by);
  // fence.proxy.async of a thread.
  void fence_proxy(const Accessor& by);

 private:
  // An access: epoch << 11 | whole warp << 10 | thread. A warp's epoch is the number of its barriers so far, from 1.
  using Stamp = uint32_t;
  static constexpr Stamp whole_warp = 1 << 10;
  static constexpr int epoch_shift = 11;

  // The last accesses to two bytes. `reader` is the last one, `other_reader` the last one from another warp than that.
  struct Word {
    Stamp writer = 0, reader = 0, other_reader = 0;
    uint32_t fences = 0;    // of the writer, with the one that passes the write on to matrix products
    bool atomic = false;    // the writer
    uint8_t copies = 0;     // in flight
    uint16_t products = 0;  // in flight
  };

  Stamp stamp(const Accessor& by) const;
  bool precedes(Stamp earlier, const Accessor& by) const;
  void check_place(uint32_t address, size_t bytes) const;
  void write_word(uint32_t address, Word& word, const Accessor& by, bool atomic);
  void read_word(uint32_t address, Word& word, const Accessor& by) const;

  std::vector<std::byte> contents_;
  std::vector<Word> words_;
  std::array<uint32_t, max_warps> epoch_ = {};
  std::array<uint32_t, max_warps> first_epoch_ = {};  // since the last barrier of the block
  // Of each thread, the number of fence.proxy.async so far, and that before the last barrier of the block.
  std::array<uint32_t, max_warps * lanes> fences_ = {}, passed_fences_ = {};
};

}  // namespace ingot::ptx
