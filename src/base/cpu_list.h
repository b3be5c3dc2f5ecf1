// Logical CPUs by number: CPU lists in Linux's format, the CPUs that this process may use, and binding threads to CPUs.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

inline constexpr int max_cpus = 8192;  // the most that Linux can be built for

// The CPUs of a list such as "0-3,8" (numbers and ranges, both ends included), in the list's order. Errors: usage for
// any other syntax, a descending range, a CPU that is listed twice, and numbers of max_cpus or more.
std::vector<int> parse_cpu_list(std::string_view text);

// The reverse of parse_cpu_list: "0-3,8". Empty for no CPUs.
std::string format_cpu_list(std::span<const int> cpus);

// The CPUs in the calling thread's affinity mask, ascending; empty when the system does not report it.
std::vector<int> usable_cpus();

// Checks that `threads` threads can be bound to the first of `cpus`, one thread per CPU. Empty `cpus` means that
// threads are not bound. Errors: usage when one of `cpus` is not among usable_cpus(), and when there are fewer CPUs
// than threads.
void require_cpus(std::span<const int> cpus, int64_t threads);

// The CPUs of pool number `pool`, when consecutive CPUs of `cpus` are given to pools of `threads` threads each. Empty
// when `cpus` is; else REQUIRES cpus.size() >= threads * (pool + 1).
std::vector<int> share_of_cpus(std::span<const int> cpus, int64_t threads, int pool);

// Binds `thread` to one CPU. Errors: resource, when the system refuses.
void bind_thread(pthread_t thread, int cpu);

// Binds the calling thread to one CPU for its lifetime, then restores the former affinity. Threads that are started
// meanwhile inherit the binding.
class BoundThread {
 public:
  // Errors: as bind_thread.
  explicit BoundThread(int cpu);
  BoundThread(const BoundThread&) = delete;
  BoundThread& operator=(const BoundThread&) = delete;
  // Must run on the same thread. Restoring can fail only when all former CPUs have been taken from the process; the
  // system has then already moved the thread to others.
  ~BoundThread();

 private:
  std::array<cpu_set_t, max_cpus / CPU_SETSIZE> before_{};
};

}  // namespace ingot
