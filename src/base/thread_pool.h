// The one owner of CPU threads.
//
// Work is cut by the caller's grain alone and handed out statically, so neither what a slice computes nor where it is
// cut depends on the number of threads: results are bit-identical for any pool size.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace ingot {

class ThreadPool {
 public:
  // `threads` >= 1 includes the calling thread, so `threads - 1` workers are started. Workers block all signals.
  // Errors: usage for threads < 1, resource when the system refuses a thread.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const;

  // Calls body(lo, hi) once for each slice [begin + k * grain, min(end, begin + (k + 1) * grain)), k = 0, 1, ...,
  // and returns when all are done. Neighbouring slices run in order on one thread. grain >= 1; an empty range does
  // nothing. Writes made by the slices are visible to the caller on return. When slices throw, the exception of the
  // lowest-numbered one is re-thrown; slices behind a throwing one on the same thread are not run.
  // Called from inside a slice (of any pool) it runs everything inline. Several threads may call; they take turns.
  void parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

  // Calls body(slot) once for each slot in [0, slots). With slots <= threads() every slot has a thread of its own
  // (slot 0 the caller's), unless the call is nested: then slots run in order on the calling thread. So slots may
  // index scratch memory but must never wait for one another.
  void run(int slots, FunctionRef<void(int)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Logical CPUs that this process may use: the affinity mask, bounded by the cgroup's CPU quota. At least 1.
int available_cpus();

}  // namespace ingot
