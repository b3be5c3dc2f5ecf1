// Memory that a thread keeps for the panels of matrix products.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <new>

#include "base/error.h"

namespace ingot::cpu {

// Grows and is kept; contents are undefined. On huge pages where it is as large as one, else aligned to 64 bytes.
template <class T>
class Panels {
 public:
  // At least so many elements, until the next call. Errors: resource.
  T* of(int64_t elements) {
    if (elements <= size_) return memory_.get();
    constexpr size_t huge_page = size_t{2} << 20;
    const size_t bytes = static_cast<size_t>(elements) * sizeof(T);
    const auto alignment = std::align_val_t{bytes >= huge_page ? huge_page : 64};
    size_ = 0;
    memory_ = {};
    memory_ = {static_cast<T*>(::operator new(bytes, alignment, std::nothrow)), Release{alignment}};
    if (!memory_) throw_error(ErrorKind::resource, "no memory for the panels of a matrix product");
    // Advice only: no error matters.
    if (bytes >= huge_page) madvise(memory_.get(), bytes / huge_page * huge_page, MADV_HUGEPAGE);
    size_ = elements;
    return memory_.get();
  }

 private:
  struct Release {
    std::align_val_t alignment{64};
    void operator()(T* data) const { ::operator delete(data, alignment); }
  };
  std::unique_ptr<T, Release> memory_;
  int64_t size_ = 0;
};

}  // namespace ingot::cpu
