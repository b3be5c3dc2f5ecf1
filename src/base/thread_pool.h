// The pool of CPU threads that runs all parallel work.
//
// Work is divided by the caller's grain alone, so neither the result of a slice nor its bounds depend on the number of
// threads: results are bit-identical for any pool size. Each thread starts with its own block of consecutive slices,
// the same in every call, for cache locality. A thread that has finished its block steals slices that others have not
// started, so that the call does not wait for a thread that the system has preempted for another program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/cpu_list.h"
#include "base/function_ref.h"
#include "base/mutex.h"

namespace ingot {

// Sizes of a pool's workspace: bytes for each of its threads, and bytes that they share. The default suffices for the
// ops of every processor (cpu::workspace_bytes states what one needs). Pages that are never touched take no memory.
struct WorkspaceBytes {
  size_t per_thread = size_t{4} << 20;
  size_t shared = size_t{24} << 20;
};

// Of a pool that runs no ops.
inline constexpr WorkspaceBytes no_workspace{0, 0};

class ThreadPool {
 public:
  // `threads` >= 1 includes the calling thread, so `threads - 1` workers are started. Workers block all signals.
  // `cpus`: if empty, the system schedules the threads freely; else thread i runs on logical CPU cpus[i] only. The
  // caller, which is thread 0, is bound only while it runs slices: outside of them, it and the threads that it starts
  // there have the CPUs that it had. This costs three system calls (10 us) per call, which a Binding saves.
  // `workspace`: scratch memory that is allocated here, once, and freed with the pool. Errors: usage for threads < 1,
  // and for a non-empty `cpus` with fewer CPUs than threads; resource when the system refuses memory, a thread or a
  // binding.
  explicit ThreadPool(int threads, std::vector<int> cpus = {}, WorkspaceBytes workspace = {});
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const;
  // Bytes of the whole workspace, over all threads.
  size_t workspace_bytes() const;

  // Keeps the calling thread bound for many calls of parallel_for, if the pool binds its threads; must end on the same
  // thread. Threads that it starts meanwhile inherit the binding. Errors: resource when the system refuses.
  class Binding {
   public:
    explicit Binding(const ThreadPool& pool);
    Binding(const Binding&) = delete;
    Binding& operator=(const Binding&) = delete;
    ~Binding();

   private:
    const void* before_;  // the pool that the thread was bound for before
    std::optional<BoundThread> bound_;
  };

  // Calls body(lo, hi) once for each slice [begin + k * grain, min(end, begin + (k + 1) * grain)), k = 0, 1, ..., and
  // returns when all are done. grain >= 1; an empty range does nothing. Writes made by the slices are visible to the
  // caller on return. When slices throw, the exception of the lowest-numbered one is rethrown; later slices may not
  // have run. A call from inside a slice (of any pool) runs everything inline. Several threads may call; they take
  // turns. Errors besides: resource when the system refuses to bind the caller.
  void parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);
  // The same; body(lo, hi, thread) also gets the number of the thread that runs it, which is 0 for the caller. In a
  // call from inside a slice it is 0 whatever thread that is.
  void parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> body);

  // Calls body(slot) once for each slot in [0, slots): in parallel as far as threads are free, else one after the
  // other. So slots may index scratch memory, but a slot must never wait for one that has not started.
  void run(int slots, FunctionRef<void(int)> body);

  // The use of a pool's workspace by one op at a time: another thread that makes one waits until this one ends. Its
  // memory is 64-byte aligned, holds what earlier ops left there, and is valid as long as the object. Errors: internal
  // inside a slice, and if this thread already has one.
  class INGOT_SCOPED_CAPABILITY Workspace {
   public:
    explicit Workspace(const ThreadPool& pool) INGOT_ACQUIRE(pool.workspace_mutex_);
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    ~Workspace() INGOT_RELEASE();

    // Of a thread by its number in parallel_for; each may use its own at the same time.
    std::span<std::byte> of(int thread) const;
    std::span<std::byte> shared() const;

   private:
    const ThreadPool& pool_;
  };

 private:
  struct State;
  std::unique_ptr<State> state_;
  mutable Mutex workspace_mutex_;
};

// Logical CPUs that this process may use: the affinity mask, bounded by the cgroup's CPU quota. At least 1.
int available_cpus();

}  // namespace ingot
