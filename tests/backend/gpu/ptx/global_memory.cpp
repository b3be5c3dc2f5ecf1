#include "tests/backend/gpu/ptx/global_memory.h"

#include <algorithm>

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

void GlobalMemory::start_launch() {
  writes_.assign((contents_.size() + 1) / 2, {});
  releases_.clear();
  block_ = 0;
}

void GlobalMemory::start_block() {
  ++block_;
  now_ = barrier_ = 0;
  acquired_.clear();
}

void GlobalMemory::block_barrier() {
  ++now_;
  barrier_ = now_;
  if (now_ >> (32 - thread_bits) != 0) {
    throw_error(ErrorKind::internal, "a block has too many barriers to look for races");
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

bool GlobalMemory::is_visible(const Write& write, uint32_t thread) const {
  if (write.block == 0 || write.block == block_) return true;
  return std::any_of(acquired_.begin(), acquired_.end(), [&](const Acquire& acquire) {
    const Release& release = acquire.of;
    const bool released =
        write.block == release.block &&
        (write.moment < release.barrier || (write.thread == release.thread && write.moment <= release.moment));
    return released && (acquire.thread == thread || acquire.moment < barrier_);
  });
}

const std::byte* GlobalMemory::read(uint64_t address, size_t bytes, int thread) {
  const std::byte* place = at(address, bytes);
  if (bytes == 1) return place;
  const size_t first = address - base_;
  for (size_t i = first / 2; i < (first + bytes) / 2; ++i) {
    if (is_visible(writes_[i], static_cast<uint32_t>(thread))) continue;
    throw_error(ErrorKind::internal,
                "a race at {:#x} of global memory: it is read, and no acquire and release order the read after the "
                "write of another block",
                base_ + 2 * i);
  }
  return place;
}

std::byte* GlobalMemory::write(uint64_t address, size_t bytes, int thread) {
  std::byte* place = at(address, bytes);
  if (bytes == 1) return place;
  const size_t first = address - base_;
  Write own;
  own.block = block_;
  own.thread = static_cast<uint32_t>(thread);
  own.moment = now_;
  for (size_t i = first / 2; i < (first + bytes + 1) / 2; ++i) writes_[i] = own;
  return place;
}

std::byte* GlobalMemory::update(uint64_t address, size_t bytes, int thread, bool is_ordered) {
  std::byte* place = write(address, bytes, thread);
  if (!is_ordered) return place;
  const auto own = static_cast<uint32_t>(thread);
  std::vector<Release>& releases = releases_[address];
  for (const Release& release : releases) acquired_.push_back({release, own, now_});
  releases.push_back({block_, own, now_, barrier_});
  ++now_;
  return place;
}

}  // namespace ingot::ptx
