#include "tests/backend/gpu/ptx/shared_memory.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::ptx {
namespace {

[[noreturn]] void race(uint32_t address, const char* what) {
  throw_error(ErrorKind::internal, "a race at {:#x} of shared memory: {}", address, what);
}

}  // namespace

SharedMemory::SharedMemory(size_t bytes) : contents_(bytes), words_((bytes + 1) / 2) { start_block(); }

void SharedMemory::start_block() {
  std::fill(contents_.begin(), contents_.end(), std::byte{0xff});
  std::fill(words_.begin(), words_.end(), Word{});
  epoch_.fill(1);
  first_epoch_.fill(1);
  fences_.fill(0);
  passed_fences_.fill(0);
}

void SharedMemory::block_barrier() {
  for (int warp = 0; warp < max_warps; ++warp) warp_barrier(warp);
  first_epoch_ = epoch_;
  passed_fences_ = fences_;
}

void SharedMemory::warp_barrier(int warp) {
  if (++epoch_[static_cast<size_t>(warp)] >= 1U << (32 - epoch_shift)) {
    throw_error(ErrorKind::internal, "a block has too many barriers to look for races");
  }
}

SharedMemory::Stamp SharedMemory::stamp(const Accessor& by) const {
  return epoch_[static_cast<size_t>(by.warp)] << epoch_shift | (by.whole_warp ? whole_warp : 0) |
         static_cast<Stamp>(by.warp * lanes + by.lane);
}

// Whether an earlier access is ordered before one that is made now.
bool SharedMemory::precedes(Stamp earlier, const Accessor& by) const {
  const uint32_t epoch = earlier >> epoch_shift;  // 0: there was none
  const int thread = static_cast<int>(earlier % whole_warp);
  const int warp = thread / lanes;
  if (warp != by.warp) return epoch < first_epoch_[static_cast<size_t>(warp)];
  const bool same_thread = thread % lanes == by.lane && !by.whole_warp && (earlier & whole_warp) == 0;
  return same_thread || epoch < epoch_[static_cast<size_t>(warp)];
}

void SharedMemory::check_place(uint32_t address, size_t bytes) const {
  if (address > contents_.size() || bytes > contents_.size() - address) {
    throw_error(ErrorKind::internal, "an access of {} bytes at {:#x} is outside shared memory ({} bytes)", bytes,
                address, contents_.size());
  }
  if (address % bytes != 0) {
    throw_error(ErrorKind::internal, "an access of {} bytes at {:#x} of shared memory is not aligned", bytes, address);
  }
}

void SharedMemory::read_word(uint32_t address, Word& word, const Accessor& by) const {
  if (word.copies > 0) race(address, "it is read before its asynchronous copy was waited for");
  if (!precedes(word.writer, by)) race(address, "it is read without a barrier after a write of another thread");
  const Stamp now = stamp(by);
  if (word.reader == now) return;
  if (word.reader % whole_warp / lanes != static_cast<Stamp>(by.warp)) {
    word.other_reader = word.reader;
    word.reader = now;
  } else {  // several readers of a warp in one epoch stand for the warp
    word.reader = word.reader >> epoch_shift == now >> epoch_shift ? now | whole_warp : now;
  }
}

const std::byte* SharedMemory::read(uint32_t address, size_t bytes, const Accessor& by) {
  check_place(address, bytes);
  for (size_t at = address / 2; at < (address + bytes + 1) / 2; ++at) read_word(address, words_[at], by);
  return contents_.data() + address;
}

void SharedMemory::write_word(uint32_t address, Word& word, const Accessor& by, bool atomic) {
  if (word.copies > 0) race(address, "it is written before its asynchronous copy was waited for");
  if (word.products > 0) race(address, "it is written before a matrix product that reads it was waited for");
  if (!precedes(word.writer, by) && !(atomic && word.atomic)) {
    race(address, "it is written without a barrier after a write of another thread");
  }
  if (!precedes(word.reader, by) || !precedes(word.other_reader, by)) {
    race(address, "it is written without a barrier after a read of another thread");
  }
  word.writer = stamp(by);
  word.fences = fences_[static_cast<size_t>(by.warp * lanes + by.lane)] + 1;
  word.atomic = atomic;
}

std::byte* SharedMemory::write(uint32_t address, size_t bytes, const Accessor& by) {
  check_place(address, bytes);
  if (bytes < 2) throw_error(ErrorKind::unsupported, "stores of one byte to shared memory are not supported");
  for (size_t at = address / 2; at < (address + bytes) / 2; ++at) write_word(address, words_[at], by, false);
  return contents_.data() + address;
}

std::byte* SharedMemory::update(uint32_t address, size_t bytes, const Accessor& by) {
  check_place(address, bytes);
  for (size_t at = address / 2; at < (address + bytes) / 2; ++at) write_word(address, words_[at], by, true);
  return contents_.data() + address;
}

void SharedMemory::start_copy(uint32_t address, size_t bytes, const Accessor& by) {
  write(address, bytes, by);
  for (size_t at = address / 2; at < (address + bytes) / 2; ++at) words_[at].copies = 1;
}

std::byte* SharedMemory::finish_copy(uint32_t address, size_t bytes, const Accessor& by) {
  for (size_t at = address / 2; at < (address + bytes) / 2; ++at) words_[at].copies = 0;
  return write(address, bytes, by);
}

void SharedMemory::start_product(uint32_t address, size_t bytes, const Accessor& by) {
  check_place(address, bytes);
  for (size_t at = address / 2; at < (address + bytes) / 2; ++at) {
    Word& word = words_[at];
    read_word(address, word, by);
    const size_t writer = word.writer % whole_warp;
    const bool same_warp = static_cast<int>(writer) / lanes == by.warp;
    if ((same_warp ? fences_ : passed_fences_)[writer] < word.fences) {
      race(address, "a matrix product reads it without fence.proxy.async after a write");
    }
    ++word.products;
  }
}

const std::byte* SharedMemory::finish_product(uint32_t address, size_t bytes, const Accessor& by) {
  for (size_t at = address / 2; at < (address + bytes) / 2; ++at) {
    --words_[at].products;
    read_word(address, words_[at], by);
  }
  return contents_.data() + address;
}

void SharedMemory::fence_proxy(const Accessor& by) { ++fences_[static_cast<size_t>(by.warp * lanes + by.lane)]; }

}  // namespace ingot::ptx
