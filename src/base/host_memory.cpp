#include "base/host_memory.h"

#include <sys/mman.h>

#include <cstdlib>

#include "base/error.h"
#include "base/strings.h"

namespace ingot {

HostMemory::HostMemory(size_t bytes, Pages pages, const char* purpose) {
  constexpr size_t huge_page = size_t{2} << 20;
  const bool huge = pages == Pages::huge && bytes >= huge_page;
  void* data = nullptr;
  if (posix_memalign(&data, huge ? huge_page : 64, bytes) != 0) {
    throw_error(ErrorKind::resource, "no {} of memory for {}", format_bytes(bytes), purpose);
  }
  // Advice only: no error matters.
  if (huge) madvise(data, bytes / huge_page * huge_page, MADV_HUGEPAGE);
  data_.reset(static_cast<std::byte*>(data));
  bytes_ = bytes;
}

void HostMemory::Free::operator()(std::byte* data) const noexcept { std::free(data); }

}  // namespace ingot
