// The heap of this process, to find memory that is taken where all of it should have been taken before.
#pragma once

#include <malloc.h>

#include <cstddef>
#include <cstdint>

namespace ingot {

// Bytes that are allocated now: by malloc, operator new and posix_memalign, on all threads. Constant where a sanitizer
// has its own heap.
inline int64_t host_heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// What a part of a program may keep that is not scratch memory: descriptions, queues, names.
inline constexpr int64_t small_objects = 64 << 10;

}  // namespace ingot
