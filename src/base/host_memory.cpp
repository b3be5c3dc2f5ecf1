#include "base/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "base/strings.h"

namespace ingot {

namespace {

constexpr size_t min_mmap_bytes = 32 << 10;

}  // namespace

// Only advice: errors are ignored.
void advise_huge_pages(void* data, size_t bytes) noexcept {
  if (bytes >= huge_page) madvise(data, bytes, MADV_HUGEPAGE);
}

void unmap(void* data, size_t bytes) noexcept {
  if (munmap(data, bytes) == 0 || (errno == ENOMEM && madvise(data, bytes, MADV_DONTNEED) == 0)) return;
  throw_error(ErrorKind::internal, "cannot release {} of memory: {}", format_bytes(bytes), errno_message(errno));
}

HostMemory::HostMemory(size_t bytes, Pages pages, const char* purpose) {
  if (pages == Pages::small && bytes >= min_mmap_bytes) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) {  // else falls back to the heap: the number of mappings is limited
      data_ = {static_cast<std::byte*>(mapped), Free{bytes}};
      bytes_ = bytes;
      return;
    }
  }
  const bool huge = pages == Pages::huge && bytes >= huge_page;
  void* data = nullptr;
  if (posix_memalign(&data, huge ? huge_page : 64, bytes) != 0) {
    throw_error(ErrorKind::resource, "cannot allocate {} of memory for {}", format_bytes(bytes), purpose);
  }
  if (huge) advise_huge_pages(data, bytes / huge_page * huge_page);
  data_.reset(static_cast<std::byte*>(data));
  bytes_ = bytes;
}

void HostMemory::Free::operator()(std::byte* data) const noexcept {
  if (mapped > 0) {
    unmap(data, mapped);
  } else {
    std::free(data);
  }
}

}  // namespace ingot
