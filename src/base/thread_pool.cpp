#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <exception>
#include <fstream>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/mutex.h"
#include "base/signals.h"

namespace ingot {
namespace {

// Set while the thread runs slices: a nested call must not wait for workers that may be waiting for it.
thread_local bool inside_slice = false;

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

// Waits until `value` is no longer `old`: about 2 microseconds of spinning, then sleeping in the kernel.
uint32_t wait_change(const std::atomic<uint32_t>& value, uint32_t old) {
  constexpr int spins = 64;
  for (int i = 0; i < spins; ++i) {
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause_briefly();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

struct Job {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t grain = 1;
  int64_t num_slices = 0;
  int num_threads = 1;
  const FunctionRef<void(int64_t, int64_t)>* body = nullptr;
};

void run_slices(const Job& job, int thread) {
  // num_slices * thread overflows only past 2^63; split into quotient and remainder instead.
  const int64_t each = job.num_slices / job.num_threads;
  const int64_t extra = job.num_slices % job.num_threads;
  const int64_t first = each * thread + std::min<int64_t>(thread, extra);
  const int64_t last = first + each + (thread < extra ? 1 : 0);
  const InsideSlice inside;
  for (int64_t slice = first; slice < last; ++slice) {
    const int64_t lo = job.begin + slice * job.grain;
    const int64_t hi = job.end - lo < job.grain ? job.end : lo + job.grain;
    (*job.body)(lo, hi);
  }
}

// One cache line (two on machines that prefetch pairs) a worker, so that waking one does not disturb the others.
struct alignas(128) Worker {
  std::atomic<uint32_t> ticket{0};  // changes when there is work (or the end) for this worker
  std::exception_ptr failure;       // written by the worker, read by the caller once `remaining` is 0
  std::thread thread;
};

}  // namespace

// `job` and `stopping` are published by the release-increment of a ticket and read back after its acquire; `dispatch`
// lets one caller at a time do that.
struct ThreadPool::State {
  explicit State(int n) : workers(static_cast<size_t>(n - 1)) {}

  Mutex dispatch;
  Job job;
  bool stopping = false;
  std::vector<Worker> workers;  // worker i is thread i + 1
  alignas(128) std::atomic<uint32_t> remaining{0};

  void work(size_t index) {
    Worker& self = workers[index];
    uint32_t seen = 0;
    for (;;) {
      seen = wait_change(self.ticket, seen);
      if (stopping) return;
      try {
        run_slices(job, static_cast<int>(index) + 1);
      } catch (...) {
        self.failure = std::current_exception();
      }
      if (remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) remaining.notify_one();
    }
  }

  void wake(Worker& worker) {
    worker.ticket.fetch_add(1, std::memory_order_release);
    worker.ticket.notify_one();
  }

  void stop() {
    stopping = true;
    for (Worker& worker : workers) {
      if (!worker.thread.joinable()) continue;
      wake(worker);
      worker.thread.join();
    }
  }
};

ThreadPool::ThreadPool(int threads) {
  if (threads < 1) throw_error(ErrorKind::usage, "a thread pool needs at least 1 thread, not {}", threads);
  state_ = std::make_unique<State>(threads);
  const BlockedSignals blocked;
  try {
    for (size_t i = 0; i < state_->workers.size(); ++i) {
      state_->workers[i].thread = std::thread([state = state_.get(), i] { state->work(i); });
    }
  } catch (const std::system_error& error) {
    state_->stop();
    throw_hint(ErrorKind::resource, "use fewer threads, or raise the limit of processes (ulimit -u)",
               "cannot start {} threads: {}", threads, error.what());
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (grain < 1) throw_error(ErrorKind::internal, "parallel_for: the grain is {}, it must be at least 1", grain);
  if (end <= begin) return;
  Job job{begin, end, grain, (end - begin - 1) / grain + 1, 1, &body};
  const int64_t most = inside_slice ? 1 : threads();
  job.num_threads = static_cast<int>(std::min(job.num_slices, most));
  if (job.num_threads == 1) {
    run_slices(job, 0);
    return;
  }

  State& state = *state_;
  const MutexLock lock(state.dispatch);
  state.job = job;
  const size_t num_workers = static_cast<size_t>(job.num_threads - 1);
  state.remaining.store(static_cast<uint32_t>(num_workers), std::memory_order_relaxed);
  for (size_t i = 0; i < num_workers; ++i) state.wake(state.workers[i]);

  std::exception_ptr failure;
  try {
    run_slices(job, 0);
  } catch (...) {
    failure = std::current_exception();
  }
  for (uint32_t left = state.remaining.load(std::memory_order_acquire); left != 0;) {
    left = wait_change(state.remaining, left);
  }
  // Threads hold ascending blocks of slices, so the first failing thread holds the first failing slice.
  for (size_t i = 0; i < num_workers; ++i) {
    std::exception_ptr other = std::exchange(state.workers[i].failure, nullptr);
    if (!failure) failure = std::move(other);
  }
  if (failure) std::rethrow_exception(failure);
}

void ThreadPool::run(int slots, FunctionRef<void(int)> body) {
  parallel_for(0, slots, 1, [&](int64_t lo, int64_t) { body(static_cast<int>(lo)); });
}

int available_cpus() {
  int count = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
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
