#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <exception>
#include <fstream>
#include <optional>
#include <span>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/cpu_list.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "base/signals.h"

namespace ingot {
namespace {

constexpr double spin_seconds = 100e-6;

// Set while the thread runs slices: a nested call must not wait for workers that may be waiting for it.
thread_local bool inside_slice = false;
// Whether this thread has the workspace of a pool.
thread_local bool has_workspace = false;

// The pool to whose first CPU this thread is already bound.
thread_local const void* bound_for = nullptr;

struct InsideSlice {
  bool before = std::exchange(inside_slice, true);
  ~InsideSlice() { inside_slice = before; }
};

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `value` is no longer `old`. Spins first, because the next work of a model comes within microseconds and
// waking a thread takes longer, then sleeps.
uint32_t wait_change(const std::atomic<uint32_t>& value, uint32_t old) {
  const double asleep_from = steady_seconds() + spin_seconds;
  do {
    for (int i = 0; i < 32; ++i) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      pause_briefly();
    }
  } while (steady_seconds() < asleep_from);
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

// Indices first .. last - 1.
struct IndexRange {
  int64_t first = 0;
  int64_t last = 0;  // exclusive
};
// Range `index` of the `ranges` consecutive ones into which 0 .. count - 1 is divided. Their sizes differ by at most
// one; the larger ones come first.
IndexRange split_range(int64_t count, int64_t ranges, int64_t index) {
  const int64_t each = count / ranges;
  const int64_t extra = count % ranges;
  const int64_t first = each * index + std::min(index, extra);
  return {first, first + each + (index < extra ? 1 : 0)};
}

// Each thread has a block of consecutive slices, divided into chunks, the unit of work stealing. Few enough for 32-bit
// indices, many enough that a late thread leaves little work to others.
constexpr int64_t max_chunks = 64;

struct Job {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t grain = 1;
  int64_t num_slices = 0;
  int num_blocks = 1;
  const FunctionRef<void(int64_t, int64_t, int)>* body = nullptr;

  IndexRange block(int thread) const { return split_range(num_slices, num_blocks, thread); }
  uint32_t num_chunks(int thread) const {
    const IndexRange slices = block(thread);
    return static_cast<uint32_t>(std::min(slices.last - slices.first, max_chunks));
  }

  // `runner` runs the slices. `slice` is always the one that is running, for the caller that catches its exception.
  void run(int runner, IndexRange slices, int64_t& slice) const {
    const InsideSlice inside;
    for (slice = slices.first; slice < slices.last; ++slice) {
      const int64_t lo = begin + slice * grain;
      const int64_t hi = end - lo < grain ? end : lo + grain;
      (*body)(lo, hi, runner);
    }
  }
  void run_chunk(int runner, int thread, uint32_t chunk, int64_t& slice) const {
    const IndexRange slices = block(thread);
    const IndexRange chunk_range = split_range(slices.last - slices.first, num_chunks(thread), chunk);
    run(runner, {slices.first + chunk_range.first, slices.first + chunk_range.last}, slice);
  }
};

// The queue of the chunks of a block that have not been started: first .. last - 1. The block's own thread pops them
// from the front, other threads steal from the back.
class ChunkQueue {
 public:
  void set(uint32_t count) { bounds_.store(uint64_t{count} << 32, std::memory_order_release); }
  std::optional<uint32_t> pop_front() { return pop(1, 0); }
  std::optional<uint32_t> pop_back() { return pop(uint64_t{0} - (uint64_t{1} << 32), -1); }
  // Removes all chunks and returns how many there were.
  uint32_t clear() {
    const uint64_t bounds = bounds_.exchange(0, std::memory_order_acq_rel);
    return last(bounds) - first(bounds);
  }

 private:
  static uint32_t first(uint64_t bounds) { return static_cast<uint32_t>(bounds); }
  static uint32_t last(uint64_t bounds) { return static_cast<uint32_t>(bounds >> 32); }

  // A job cannot end while a thread has popped one of its chunks and not finished it. So a late thread may pop a chunk
  // of whatever job is current, but may read the job only after that.
  std::optional<uint32_t> pop(uint64_t step, int back) {
    uint64_t bounds = bounds_.load(std::memory_order_acquire);
    while (first(bounds) < last(bounds)) {
      if (bounds_.compare_exchange_weak(bounds, bounds + step, std::memory_order_acq_rel, std::memory_order_acquire)) {
        return back == 0 ? first(bounds) : last(bounds) - 1;
      }
    }
    return std::nullopt;
  }

  std::atomic<uint64_t> bounds_{0};
};

// One cache line per thread (two on machines that prefetch pairs), to avoid false sharing.
struct alignas(128) Thread {
  ChunkQueue chunks;
  std::atomic<uint32_t> ticket{0};  // changes when there is work for this thread, or it must end
  std::exception_ptr failure;       // of slice `failed`; the caller reads it once `unfinished` is 0
  int64_t failed = 0;
  std::thread thread;  // none for the calling thread
};

}  // namespace

// `job` is published by the release store of the chunks and read after a chunk was popped; `dispatch` admits one caller
// at a time.
struct ThreadPool::State {
  State(int n, std::vector<int> where, WorkspaceBytes sizes)
      : cpus(std::move(where)), bytes(sizes), threads(static_cast<size_t>(n)) {
    const size_t all = threads.size() * bytes.per_thread + bytes.shared;
    if (all > 0) workspace = HostMemory(all, HostMemory::Pages::huge, "the workspace of the CPU's threads");
  }

  const std::vector<int> cpus;  // one per thread, or none
  const WorkspaceBytes bytes;
  HostMemory workspace;  // of each thread, then the shared part
  Mutex dispatch;
  Job job;
  std::atomic<bool> stopping{false};
  std::vector<Thread> threads;                       // the first is the caller's
  alignas(128) std::atomic<uint32_t> unfinished{0};  // chunks

  // Runs chunks that have not been started: first those of the thread's own block, then those of other blocks.
  void run_chunks(size_t self) {
    uint32_t done = 0;
    Thread& me = threads[self];
    const auto runner = static_cast<int>(self);
    int64_t slice = 0;
    bool own = true;
    try {
      while (const std::optional<uint32_t> chunk = me.chunks.pop_front()) {
        ++done;
        job.run_chunk(runner, runner, *chunk, slice);
      }
      own = false;
      for (size_t i = 1; i < threads.size(); ++i) {
        const size_t other = (self + i) % threads.size();
        while (const std::optional<uint32_t> chunk = threads[other].chunks.pop_back()) {
          ++done;
          job.run_chunk(runner, static_cast<int>(other), *chunk, slice);
        }
      }
    } catch (...) {
      // A late thread may call this twice during a job: its own queue may be filled while it steals from others.
      if (!me.failure || slice < me.failed) {
        me.failure = std::current_exception();
        me.failed = slice;
      }
      if (own) done += me.chunks.clear();
    }
    if (done > 0 && unfinished.fetch_sub(done, std::memory_order_acq_rel) == done) unfinished.notify_one();
  }

  void worker_loop(size_t self) {
    uint32_t seen = 0;
    for (;;) {
      seen = wait_change(threads[self].ticket, seen);
      if (stopping) return;
      run_chunks(self);
    }
  }

  static void wake(Thread& thread) {
    thread.ticket.fetch_add(1, std::memory_order_release);
    thread.ticket.notify_one();
  }

  void stop() {
    stopping = true;
    for (Thread& thread : threads) {
      if (!thread.thread.joinable()) continue;
      wake(thread);
      thread.thread.join();
    }
  }
};

ThreadPool::ThreadPool(int threads, std::vector<int> cpus, WorkspaceBytes workspace) {
  if (threads < 1) throw_error(ErrorKind::usage, "a thread pool needs at least 1 thread, not {}", threads);
  if (!cpus.empty() && std::ssize(cpus) < threads) {
    throw_error(ErrorKind::usage, "cannot bind {} threads to {} CPUs", threads, cpus.size());
  }
  const auto aligned = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
  state_ = std::make_unique<State>(threads, std::move(cpus),
                                   WorkspaceBytes{aligned(workspace.per_thread), aligned(workspace.shared)});
  const BlockedSignals blocked;
  try {
    for (size_t i = 1; i < state_->threads.size(); ++i) {
      std::thread& thread = state_->threads[i].thread;
      thread = std::thread([state = state_.get(), i] { state->worker_loop(i); });
      if (!state_->cpus.empty()) bind_thread(thread.native_handle(), state_->cpus[i]);
    }
  } catch (const std::system_error& error) {
    state_->stop();
    throw_hint(ErrorKind::resource, "use fewer threads, or raise the process limit (ulimit -u)",
               "cannot start {} threads: {}", threads, error.what());
  } catch (...) {
    state_->stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

ThreadPool::Binding::Binding(const ThreadPool& pool) : before_(bound_for) {
  const State* state = pool.state_.get();
  if (state->cpus.empty() || bound_for == state) return;
  bound_.emplace(state->cpus[0]);
  bound_for = state;
}

ThreadPool::Binding::~Binding() { bound_for = before_; }

int ThreadPool::threads() const { return static_cast<int>(state_->threads.size()); }
size_t ThreadPool::workspace_bytes() const { return state_->workspace.bytes(); }

ThreadPool::Workspace::Workspace(const ThreadPool& pool) : pool_(pool) {
  // The slice's caller may be waited for by the workspace's present user.
  if (inside_slice) throw_error(ErrorKind::internal, "an op that needs the pool's workspace was called inside a slice");
  if (has_workspace)
    throw_error(ErrorKind::internal, "an op that has the pool's workspace called another that needs it");
  pool.workspace_mutex_.lock();
  has_workspace = true;
}
ThreadPool::Workspace::~Workspace() {
  has_workspace = false;
  pool_.workspace_mutex_.unlock();
}

std::span<std::byte> ThreadPool::Workspace::of(int thread) const {
  const State& state = *pool_.state_;
  return {state.workspace.data() + static_cast<size_t>(thread) * state.bytes.per_thread, state.bytes.per_thread};
}

std::span<std::byte> ThreadPool::Workspace::shared() const {
  const State& state = *pool_.state_;
  return {state.workspace.data() + state.threads.size() * state.bytes.per_thread, state.bytes.shared};
}

void ThreadPool::parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  parallel_for(begin, end, grain, [&](int64_t lo, int64_t hi, int) { body(lo, hi); });
}

void ThreadPool::parallel_for(int64_t begin, int64_t end, int64_t grain,
                              FunctionRef<void(int64_t, int64_t, int)> body) {
  if (grain < 1) throw_error(ErrorKind::internal, "parallel_for: the grain is {}, it must be at least 1", grain);
  if (end <= begin) return;
  Job job{begin, end, grain, (end - begin - 1) / grain + 1, 1, &body};
  const int64_t max_threads = inside_slice ? 1 : threads();
  job.num_blocks = static_cast<int>(std::min(job.num_slices, max_threads));
  std::optional<Binding> bound;
  if (job.num_blocks == 1) {
    if (!inside_slice) bound.emplace(*this);  // else it is bound already
    int64_t slice = 0;
    job.run(0, {0, job.num_slices}, slice);
    return;
  }

  State& state = *state_;
  const MutexLock lock(state.dispatch);
  bound.emplace(*this);
  state.job = job;
  uint32_t chunks = 0;
  for (int i = 0; i < job.num_blocks; ++i) chunks += job.num_chunks(i);
  state.unfinished.store(chunks, std::memory_order_relaxed);
  const auto threads = std::span(state.threads).first(static_cast<size_t>(job.num_blocks));
  for (size_t i = 0; i < threads.size(); ++i) threads[i].chunks.set(job.num_chunks(static_cast<int>(i)));
  for (Thread& thread : threads.subspan(1)) State::wake(thread);

  state.run_chunks(0);
  for (uint32_t left = state.unfinished.load(std::memory_order_acquire); left != 0;) {
    left = wait_change(state.unfinished, left);
  }
  // Every slice below the first failing one was run, either before it on the same thread or on another thread.
  Thread* first = nullptr;
  for (Thread& thread : state.threads) {
    if (thread.failure && (first == nullptr || thread.failed < first->failed)) first = &thread;
  }
  if (first == nullptr) return;
  const std::exception_ptr failure = first->failure;
  for (Thread& thread : state.threads) thread.failure = nullptr;
  std::rethrow_exception(failure);
}

void ThreadPool::run(int slots, FunctionRef<void(int)> body) {
  parallel_for(0, slots, 1, [&](int64_t lo, int64_t) { body(static_cast<int>(lo)); });
}

int available_cpus() {
  auto count = static_cast<int>(usable_cpus().size());
  if (count == 0) count = static_cast<int>(std::thread::hardware_concurrency());
  // cgroup v2: "QUOTA PERIOD" in microseconds, or "max PERIOD".
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota >> period && quota > 0 && period > 0) {
    count = std::min(count, static_cast<int>(std::ceil(quota / period)));
  }
  return std::max(count, 1);
}

}  // namespace ingot
