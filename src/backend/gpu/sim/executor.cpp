#include "backend/gpu/sim/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <cstring>
#include <deque>
#include <numeric>
#include <span>
#include <vector>

#include "backend/gpu/sim/thread.h"
#include "base/error.h"
#include "base/philox.h"

#if defined(__SANITIZE_ADDRESS__)
#define INGOT_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define INGOT_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef INGOT_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace ingot::gpu::sim {

__thread Current current;

namespace {

using Fiber = boost::context::fiber;

constexpr size_t stack_bytes = size_t{128} << 10;
constexpr int max_width = 64;

// Thrown in a waiting thread to end it after its block has failed. Caught on the same fiber, in run_thread().
struct Abandoned {};

// A fiber that runs threads of the block one after another. A thread that waits keeps its worker until it resumes.
struct Worker {
  Fiber fiber;
  Current position;  // of its thread, while the thread waits
  // The address sanitizer must be notified of every stack switch.
  const void* stack_bottom = nullptr;
  size_t stack_size = 0;
  void* fake_stack = nullptr;
};

// The barrier of a warp's lanes or of a block's threads. `buffer` alternates between 0 and 1, so that the values of one
// exchange can still be read while those of the next are written.
struct Barrier {
  int arrived = 0;
  int line = 0;
  int buffer = 0;
  std::vector<Worker*> waiting = {};
};

struct Warp {
  Barrier barrier;
  uint32_t bits[2][max_width];
  float result[2];
  void* operands[max_width];
};

}  // namespace

class Executor::State {
 public:
  explicit State(int width) : width_(width) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    closing_ = true;
    while (!idle_.empty()) resume(idle_worker());
  }

  void run(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_bytes, Schedule schedule);

  void wait_for_block(int line) { wait_at(block_, static_cast<int>(order_.size()), line, "block"); }
  void wait_for_warp(int line) { wait_at(warp().barrier, width_, line, "warp"); }
  uint32_t exchange(uint32_t value, int lane, int line);
  template <class Reduce>
  float reduce(float value, int line, Reduce reduce);
  void warp_collective(void* operands, Combine combine, int line);
  void* shared_memory(size_t bytes, bool is_static);

  static __thread State* active;

 private:
  void run_block();
  Worker* idle_worker();
  void work();  // the main loop of a worker
  bool run_thread();
  void resume(Worker* worker);
  void pause();
  void wait_at(Barrier& barrier, int num_threads, int line, const char* what);
  Warp& warp() { return warps_[static_cast<size_t>(current.thread / width_)]; }
  [[noreturn]] void fail(const std::string& text);
  std::string describe_waiting() const;

  const int width_;
  const KernelInfo* kernel_ = nullptr;
  const void* args_ = nullptr;
  size_t dynamic_bytes_ = 0;
  Schedule schedule_ = Schedule::forward;
  RandomStream random_{7, 0};

  std::vector<int> order_;  // the order in which the threads of a block start
  size_t started_ = 0;
  size_t ended_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  std::deque<Worker*> ready_;
  Worker* running_ = nullptr;
  Fiber scheduler_;
  [[maybe_unused]] const void* scheduler_bottom_ = nullptr;  // for the address sanitizer
  [[maybe_unused]] size_t scheduler_size_ = 0;

  Barrier block_;
  std::vector<Warp> warps_;
  std::unique_ptr<unsigned char[]> shared_;
  size_t shared_bytes_ = 0;
  bool shared_in_use_ = false;  // by the running block
  bool shared_is_static_ = false;
  std::string failure_;
  bool closing_ = false;
};

__thread Executor::State* Executor::State::active = nullptr;

void Executor::State::run(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_bytes,
                          Schedule schedule) {
  kernel_ = &kernel;
  args_ = args;
  dynamic_bytes_ = dynamic_bytes;
  schedule_ = schedule;
  order_.resize(static_cast<size_t>(kernel.block_threads(width_)));
  std::iota(order_.begin(), order_.end(), 0);
  if (schedule == Schedule::backward) std::reverse(order_.begin(), order_.end());
  warps_.resize(order_.size() / static_cast<size_t>(width_));
  State* const outer = std::exchange(active, this);
  const int64_t blocks = grid.x * grid.y;
  std::vector<int64_t> shuffled;
  if (schedule == Schedule::random) {
    shuffled.resize(static_cast<size_t>(blocks));
    std::iota(shuffled.begin(), shuffled.end(), 0);
    random_.shuffle(std::span(shuffled));
  }
  for (int64_t b = 0; b < blocks && failure_.empty(); ++b) {
    int64_t block = schedule == Schedule::backward ? blocks - 1 - b : b;
    if (schedule == Schedule::random) {
      block = shuffled[static_cast<size_t>(b)];
      random_.shuffle(std::span(order_));
    }
    current = {0, static_cast<int>(block % grid.x), static_cast<int>(block / grid.x), static_cast<int>(grid.x)};
    run_block();
  }
  active = outer;
  if (!failure_.empty()) throw_error(ErrorKind::internal, "{}", std::exchange(failure_, {}));
}

void Executor::State::run_block() {
  started_ = ended_ = 0;
  shared_in_use_ = false;
  const Current position_of_block = current;
  while (failure_.empty() && ended_ < order_.size()) {
    if (started_ < order_.size()) {
      Worker* worker = idle_worker();
      worker->position = position_of_block;
      worker->position.thread = order_[started_++];
      resume(worker);
    } else if (!ready_.empty()) {
      if (schedule_ == Schedule::random) {
        std::swap(ready_[static_cast<size_t>(random_.below(ready_.size()))], ready_.back());
      }
      const bool first = schedule_ == Schedule::forward;
      Worker* worker = first ? ready_.front() : ready_.back();
      if (first) {
        ready_.pop_front();
      } else {
        ready_.pop_back();
      }
      resume(worker);
    } else {
      failure_ = fmt::format("kernel {} on sim{}, block ({}, {}): {}", kernel_->name, width_, position_of_block.block_x,
                             position_of_block.block_y, describe_waiting());
    }
  }
  if (failure_.empty()) return;
  // Resumes every thread that still waits; it unwinds by an exception on its own stack.
  std::vector<Worker*> waiting(ready_.begin(), ready_.end());
  ready_.clear();
  const auto add = [&](Barrier& barrier) {
    waiting.insert(waiting.end(), barrier.waiting.begin(), barrier.waiting.end());
    barrier = {};
  };
  add(block_);
  for (Warp& each : warps_) add(each.barrier);
  for (Worker* worker : waiting) resume(worker);
}

std::string Executor::State::describe_waiting() const {
  for (const Warp& each : warps_) {
    if (each.barrier.arrived > 0) {
      return fmt::format("{} lanes of a warp wait at line {} for others that have ended or wait elsewhere",
                         each.barrier.arrived, each.barrier.line);
    }
  }
  return fmt::format("{} of {} threads wait at the barrier of line {} for others that have ended", block_.arrived,
                     order_.size(), block_.line);
}

Worker* Executor::State::idle_worker() {
  if (!idle_.empty()) {
    Worker* worker = idle_.back();
    idle_.pop_back();
    return worker;
  }
  workers_.push_back(std::make_unique<Worker>());
  Worker* worker = workers_.back().get();
  boost::context::fixedsize_stack allocator(stack_bytes);
  boost::context::stack_context stack = allocator.allocate();
  worker->stack_bottom = static_cast<char*>(stack.sp) - stack.size;
  worker->stack_size = stack.size;
  worker->fiber = Fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack), allocator,
                        [this](Fiber&& caller) {
                          scheduler_ = std::move(caller);
#ifdef INGOT_ADDRESS_SANITIZER
                          __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom_, &scheduler_size_);
#endif
                          work();
#ifdef INGOT_ADDRESS_SANITIZER
                          __sanitizer_start_switch_fiber(nullptr, scheduler_bottom_, scheduler_size_);
#endif
                          return std::move(scheduler_);
                        });
  return worker;
}

// False if the block has failed meanwhile; run() throws failure_.
bool Executor::State::run_thread() {
  try {
    (width_ == 32 ? kernel_->sim32 : kernel_->sim64)(args_);
    return true;
  } catch (const Abandoned&) {
    return false;
  }
}

void Executor::State::work() {
  for (;;) {
    Worker* const self = running_;
    if (run_thread()) ++ended_;
    if (failure_.empty() && started_ < order_.size()) {
      current.thread = order_[started_++];
      current.async_groups = 0;
      continue;
    }
    idle_.push_back(self);
    pause();
    if (closing_) return;
  }
}

// Switches from a worker to the scheduler, until resumed.
void Executor::State::pause() {
#ifdef INGOT_ADDRESS_SANITIZER
  Worker* const self = running_;
  __sanitizer_start_switch_fiber(&self->fake_stack, scheduler_bottom_, scheduler_size_);
#endif
  scheduler_ = std::move(scheduler_).resume();
#ifdef INGOT_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(self->fake_stack, &scheduler_bottom_, &scheduler_size_);
#endif
}

void Executor::State::resume(Worker* worker) {
  running_ = worker;
  current = worker->position;
#ifdef INGOT_ADDRESS_SANITIZER
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, worker->stack_bottom, worker->stack_size);
#endif
  worker->fiber = std::move(worker->fiber).resume();
#ifdef INGOT_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  worker->position = current;
}

void Executor::State::fail(const std::string& text) {
  if (failure_.empty()) {
    failure_ = fmt::format("kernel {} on sim{}, block ({}, {}), thread {}: {}", kernel_->name, width_, current.block_x,
                           current.block_y, current.thread, text);
  }
  throw Abandoned{};
}

void Executor::State::wait_at(Barrier& barrier, int num_threads, int line, const char* what) {
  if (barrier.arrived == 0) {
    barrier.line = line;
  } else if (barrier.line != line) {
    fail(fmt::format("at line {} while others of its {} wait at line {}", line, what, barrier.line));
  }
  if (++barrier.arrived < num_threads) {
    barrier.waiting.push_back(running_);
    pause();
    if (!failure_.empty()) throw Abandoned{};
    return;
  }
  barrier.arrived = 0;
  barrier.buffer = 1 - barrier.buffer;
  ready_.insert(ready_.end(), barrier.waiting.begin(), barrier.waiting.end());
  barrier.waiting.clear();
}

uint32_t Executor::State::exchange(uint32_t value, int lane, int line) {
  if (lane < 0 || lane >= width_) fail(fmt::format("line {} asks for lane {}", line, lane));
  Warp& own_warp = warp();
  uint32_t* bits = own_warp.bits[own_warp.barrier.buffer];
  bits[current.thread % width_] = value;
  wait_at(own_warp.barrier, width_, line, "warp");
  return bits[lane];
}

template <class Reduce>
float Executor::State::reduce(float value, int line, Reduce reduce) {
  Warp& own_warp = warp();
  uint32_t* bits = own_warp.bits[own_warp.barrier.buffer];
  float* result = &own_warp.result[own_warp.barrier.buffer];
  std::memcpy(bits + current.thread % width_, &value, sizeof value);
  if (own_warp.barrier.arrived + 1 == width_) {
    float values[max_width];
    std::memcpy(values, bits, sizeof(float) * static_cast<size_t>(width_));
    for (int left = width_ / 2; left > 0; left /= 2) {
      for (int i = 0; i < left; ++i) values[i] = reduce(values[2 * i], values[2 * i + 1]);
    }
    *result = values[0];
  }
  wait_at(own_warp.barrier, width_, line, "warp");
  return *result;
}

void Executor::State::warp_collective(void* operands, Combine combine, int line) {
  Warp& group = warp();
  group.operands[current.thread % width_] = operands;
  if (group.barrier.arrived + 1 == width_) combine(group.operands);
  wait_at(group.barrier, width_, line, "warp");
}

void* Executor::State::shared_memory(size_t bytes, bool is_static) {
  if (!is_static) bytes = dynamic_bytes_;
  if (shared_in_use_) {
    if (is_static != shared_is_static_ || bytes != shared_bytes_) fail("declares shared memory twice");
    return shared_.get();
  }
  if (bytes != shared_bytes_ ||
      !shared_) {  // exactly this size, so that the address sanitizer catches accesses past the end
    shared_ = std::make_unique<unsigned char[]>(bytes);
    shared_bytes_ = bytes;
  }
  std::memset(shared_.get(), 0xff, bytes);
  shared_in_use_ = true;
  shared_is_static_ = is_static;
  return shared_.get();
}

Executor::Executor(int width) : state_(std::make_unique<State>(width)) {}
Executor::~Executor() = default;

void Executor::run(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_shared_bytes,
                   Schedule schedule) {
  state_->run(kernel, args, grid, dynamic_shared_bytes, schedule);
}

void block_barrier(int line) { Executor::State::active->wait_for_block(line); }
void warp_barrier(int line) { Executor::State::active->wait_for_warp(line); }
uint32_t exchange_bits(uint32_t value, int lane, int line) {
  return Executor::State::active->exchange(value, lane, line);
}
float warp_sum(float value, int line) {
  return Executor::State::active->reduce(value, line, [](float a, float b) { return a + b; });
}
float warp_max(float value, int line) {
  return Executor::State::active->reduce(value, line, [](float a, float b) { return b > a ? b : a; });
}
void warp_collective(void* operands, Combine combine, int line) {
  Executor::State::active->warp_collective(operands, combine, line);
}
void* shared_memory(size_t bytes, bool is_static) { return Executor::State::active->shared_memory(bytes, is_static); }

}  // namespace ingot::gpu::sim
