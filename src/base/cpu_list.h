// Logical CPUs by their numbers: lists as Linux writes them, which of them this process may use, and threads that are
// bound to one.
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

inline constexpr int most_cpus = 8192;  // that Linux can be built for

// The CPUs of a list such as "0-3,8" (numbers and ranges, both ends included), in the list's order. Errors: usage for
// another syntax, a range that goes down, a CPU that is named twice, and numbers of most_cpus or more.
std::vector<int> parse_cpu_list(std::string_view text);

// The reverse: "0-3,8". Empty for none.
std::string format_cpu_list(std::span<const int> cpus);

// Those that the calling thread's affinity mask has, ascending; empty where the system does not tell.
std::vector<int> usable_cpus();

// For `threads` threads that are to be bound to the first of `cpus`, one each; none of them: not to be bound.
// Errors: usage when one of `cpus` is not among usable_cpus(), and when there are fewer than threads.
void require_cpus(std::span<const int> cpus, int64_t threads);

// Of the CPUs for pools of `threads` threads each, those of pool number `pool`, in their order; none where there are
// none. cpus.size() >= threads * (pool + 1).
std::vector<int> share_of_cpus(std::span<const int> cpus, int64_t threads, int pool);

// Binds `thread` to one CPU. Errors: resource, when the system refuses.
void bind_thread(pthread_t thread, int cpu);

// While it lives, the calling thread is bound to one CPU; then it may use those again that it could before. Threads
// that it starts meanwhile inherit the binding.
class BoundThread {
 public:
  // Errors: as bind_thread.
  explicit BoundThread(int cpu);
  BoundThread(const BoundThread&) = delete;
  BoundThread& operator=(const BoundThread&) = delete;
  // Of the same thread. The system can refuse only when all former CPUs have meanwhile been taken from the process, and
  // has then itself given the thread others.
  ~BoundThread();

 private:
  std::array<cpu_set_t, most_cpus / CPU_SETSIZE> before_{};
};

}  // namespace ingot
