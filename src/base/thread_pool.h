// The one owner of CPU threads.
//
// Work is cut by the caller's grain alone, so neither what a slice computes nor where it is cut depends on the number
// of threads: results are bit-identical for any pool size. Every thread begins with its own share of neighbouring
// slices, the same one each time, for the caches' sake; who is done takes what others have not begun, so that a thread
// that the system does not let run, beside other programs, is not waited for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/cpu_list.h"
#include "base/function_ref.h"

namespace ingot {

class ThreadPool {
 public:
  // `threads` >= 1 includes the calling thread, so `threads - 1` workers are started. Workers block all signals.
  // `cpus`: where the system runs them, as it likes when empty; else thread i runs on logical CPU cpus[i] only, and the
  // caller, which is thread 0, is bound while it runs slices and no longer: what it does between them, and threads that
  // it starts there, have the CPUs that it had. That takes three system calls (10 us) a call, which a Binding saves.
  // Errors: usage for threads < 1, and for some cpus that are fewer than threads; resource when the system refuses a
  // thread or a binding.
  explicit ThreadPool(int threads, std::vector<int> cpus = {});
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const;

  // Keeps the calling thread bound for many calls of parallel_for, where the pool binds; ends on the same thread.
  // Threads that it starts meanwhile inherit that. Errors: resource when the system refuses.
  class Binding {
   public:
    explicit Binding(const ThreadPool& pool);
    Binding(const Binding&) = delete;
    Binding& operator=(const Binding&) = delete;
    ~Binding();

   private:
    const void* before_;  // the pool that the thread was bound for
    std::optional<BoundThread> bound_;
  };

  // Calls body(lo, hi) once for each slice [begin + k * grain, min(end, begin + (k + 1) * grain)), k = 0, 1, ...,
  // and returns when all are done. grain >= 1; an empty range does nothing. Writes made by the slices are visible to
  // the caller on return. When slices throw, the exception of the lowest-numbered one is re-thrown; slices behind it
  // may not have been run. Called from inside a slice (of any pool) it runs everything inline. Several threads may
  // call; they take turns. Errors besides: resource when the system refuses to bind the caller.
  void parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

  // Calls body(slot) once for each slot in [0, slots), on any threads: on one of its own where that is free, one behind
  // the other where not. So slots may index scratch memory but must never wait for one that has not begun.
  void run(int slots, FunctionRef<void(int)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Logical CPUs that this process may use: the affinity mask, bounded by the cgroup's CPU quota. At least 1.
int available_cpus();

}  // namespace ingot
