#include "tests/infer/short_memory.h"

#include <cstdlib>
#include <new>

namespace {

thread_local int64_t allowed = ingot::all_allocations;

}  // namespace

namespace ingot {

void allow_allocations(int64_t count) { allowed = count; }

}  // namespace ingot

void* operator new(size_t bytes) {
  if (allowed == 0) throw std::bad_alloc();
  if (allowed > 0) --allowed;
  void* made = std::malloc(bytes == 0 ? 1 : bytes);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
