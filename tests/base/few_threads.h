// Runs code in a process of its own in which creating threads fails: the address space is limited.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "base/error.h"

namespace ingot {

// Limits the address space so that one more thread's stack fits and a second one does not. Stacks are so large that
// smaller allocations, such as a thread's heap, still succeed.
inline void leave_one_thread() {
  constexpr size_t stack = size_t{1} << 30;
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0 || pthread_attr_setstacksize(&attributes, stack) != 0 ||
      pthread_setattr_default_np(&attributes) != 0)
    std::_Exit(1);
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + stack + stack / 2;
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(1);
}

// Runs `work`, which must throw because a thread cannot be created. The process then exits with 7.
template <class Work>
void without_threads(const Work& work) {
  leave_one_thread();
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) std::_Exit(2);
    fprintf(stderr, "%s\n", error.what());
    std::_Exit(7);
  }
  std::_Exit(3);
}

}  // namespace ingot
