// Work that is refused threads: in a process of its own, whose memory ends behind the stack of the first.
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

// From now on there is address space for one more thread's stack, and not for two. Stacks are so large that what else
// needs memory, such as a thread's heap, has enough.
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

// Runs `work`, which must fail for want of a thread, and ends the process with 7 when it says so.
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
