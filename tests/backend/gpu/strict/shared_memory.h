// The memory that the strict driver and its GPU share, a file without a name, mapped at the same addresses in both: a
// page of control words, device memory, and page-locked host memory. The program under test has no access to device
// memory, and the GPU none to other host memory. Between allocations are pages that neither may access.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace strict {

inline constexpr size_t page_bytes = 4096;
inline constexpr size_t max_streams = 1024;

struct Control {
  std::atomic<int> status;                       // the error that ended the GPU's work; all later calls return it
  std::atomic<uint32_t> progress;                // changes whenever a command completes; waited on as a futex
  std::atomic<uint64_t> completed[max_streams];  // commands of each stream
};
inline constexpr size_t control_bytes = (sizeof(Control) + page_bytes - 1) / page_bytes * page_bytes;

// Addresses are not used twice, so that what uses freed memory is found. CUDA's and HIP's driver may be in one process.
inline constexpr size_t space_bytes = size_t{1} << 36;  // of device memory, and as much for page-locked memory
inline constexpr uintptr_t cuda_base = 0x570000000000;
inline constexpr uintptr_t hip_base = 0x580000000000;

// The pages of an allocation. It ends where its last page ends, up to its alignment.
inline constexpr size_t allocation_alignment = 256;  // bytes, of cuMemAlloc
struct Pages {
  uintptr_t begin;
  size_t bytes;
};
inline Pages pages_of(uintptr_t data, size_t bytes) {
  const uintptr_t begin = data / page_bytes * page_bytes;
  const uintptr_t end = (data + bytes + page_bytes - 1) / page_bytes * page_bytes;
  return {begin, end - begin};
}

}  // namespace strict
