// strict_gpu LANES BASE: the GPU of the strict driver (../driver.h). It receives commands on descriptor 3, runs those
// of each stream in a thread, kernels by their simulation with LANES lanes a warp and calls of libraries by the
// functions of fakes/device_functions.h, and shares memory by descriptor 4. It can access allocations and nothing else.
// It ends when the program that started it does.
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "backend/gpu/kernels.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/sim/executor.h"
#include "base/error.h"
#include "tests/backend/gpu/fakes/device_functions.h"
#include "tests/backend/gpu/strict/command.h"
#include "tests/backend/gpu/strict/settings.h"
#include "tests/backend/gpu/strict/shared_memory.h"
#include "tests/backend/gpu/strict/status.h"

namespace strict {
namespace {

constexpr int commands = 3;  // descriptors
constexpr int memory = 4;

Control* control = nullptr;
thread_local const char* running = "a copy";  // what the thread does, for the description of a fault

void notify() {
  ++control->progress;
  syscall(SYS_futex, &control->progress, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Ends all work with an error that the driver returns from then on. Also called in signal handlers.
[[noreturn]] void fail(Status status, const char* text) {
  char line[512];
  const int length = std::snprintf(line, sizeof line, "strict driver: %s\n", text);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, static_cast<size_t>(std::min(length, 511)));
  control->status = status;
  notify();
  _exit(1);
}

void fail_on_access(int, siginfo_t* info, void*) {
  char text[400];
  std::snprintf(text, sizeof text, "%s accessed %p, which is no device memory or beside an allocation", running,
                info->si_addr);
  fail(illegal_address, text);
}

std::byte* at(uint64_t address) { return std::bit_cast<std::byte*>(address); }

class Gpu {
 public:
  Gpu(int lanes, const Settings& settings) : lanes_(lanes), settings_(settings) {
    ingot::ops::Registry linked;  // the linker leaves out kernels that nothing refers to
    ingot::gpu::register_ops(linked, ingot::DeviceKind::sim);
    for (const ingot::gpu::KernelInfo* kernel : ingot::gpu::kernels()) kernels_[kernel->name] = kernel;
  }

  // Receives commands until the program ends.
  void serve() {
    for (;;) {
      auto command = std::make_unique<Command>();
      if (recv(commands, command.get(), sizeof *command, 0) <= 0) return;
      if (command->kind == CommandKind::map) {
        map(*command);
      } else if (command->kind == CommandKind::unmap) {
        unmap(*command);
      } else {
        add(std::move(command));
      }
    }
  }

 private:
  static constexpr auto beside = std::byte{0xa5};  // the bytes between an allocation and the ends of its pages

  void map(const Command& command) {
    const Pages pages = pages_of(command.to, command.bytes);
    if (mprotect(at(pages.begin), pages.bytes, PROT_READ | PROT_WRITE) != 0) fail(out_of_memory, "mprotect fails");
    if (command.value == 0) return;  // host memory, which the driver fills
    std::byte* const data = at(command.to);
    std::fill(at(pages.begin), data, beside);
    std::fill(data, data + command.bytes, std::byte{0xff});
    std::fill(data + command.bytes, at(pages.begin + pages.bytes), beside);
  }

  void unmap(const Command& command) {
    const Pages pages = pages_of(command.to, command.bytes);
    if (command.value != 0) {
      const auto changed = [](std::byte byte) { return byte != beside; };
      if (std::any_of(at(pages.begin), at(command.to), changed) ||
          std::any_of(at(command.to + command.bytes), at(pages.begin + pages.bytes), changed)) {
        char text[200];
        std::snprintf(text, sizeof text, "bytes beside an allocation of %zu bytes were written",
                      static_cast<size_t>(command.bytes));
        fail(illegal_address, text);
      }
    }
    mprotect(at(pages.begin), pages.bytes, PROT_NONE);
    madvise(at(pages.begin), pages.bytes, MADV_REMOVE);
  }

  void add(std::unique_ptr<Command> command) {
    const std::scoped_lock lock(mutex_);
    const uint32_t stream = command->stream;
    if (queues_.find(stream) == queues_.end()) std::thread([this, stream] { run(stream); }).detach();
    queues_[stream].push_back(std::move(command));
    changed_.notify_all();
  }

  [[noreturn]] void run(uint32_t stream) {
    ingot::gpu::sim::Executor executor(lanes_);
    for (;;) {
      std::unique_ptr<Command> command;
      {
        std::unique_lock lock(mutex_);
        std::deque<std::unique_ptr<Command>>& queue = queues_[stream];
        changed_.wait(lock, [&] { return !queue.empty(); });
        command = std::move(queue.front());
        queue.pop_front();
        if (command->kind == CommandKind::wait) {
          changed_.wait(lock, [&] { return control->completed[command->other] >= command->number; });
        }
        if (settings_.lost_after > 0 && ++executed_ > settings_.lost_after) fail(unknown, "the device is lost");
      }
      if (settings_.delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(settings_.delay_us));
      execute(executor, *command);
      {
        const std::scoped_lock lock(mutex_);
        ++control->completed[stream];
      }
      changed_.notify_all();
      notify();
    }
  }

  void execute(ingot::gpu::sim::Executor& executor, const Command& command) const {
    running = "a copy";
    if (command.kind == CommandKind::fill) std::memset(at(command.to), static_cast<int>(command.value), command.bytes);
    if (command.kind == CommandKind::copy) std::memcpy(at(command.to), at(command.from), command.bytes);
    if (command.kind == CommandKind::launch) launch(executor, command);
    if (command.kind == CommandKind::library) call_library(command);
  }

  static void call_library(const Command& command) {
    running = command.kernel;
    const fake::DeviceFunction* function = fake::find_device_function(command.kernel);
    if (function == nullptr || function->args_bytes != command.args_bytes) fail(not_found, "no such library function");
    alignas(64) unsigned char args[sizeof command.args];
    std::memcpy(args, command.args, command.args_bytes);
    try {
      function->run(args);
    } catch (const std::exception& error) {
      fail(launch_failed, error.what());
    }
  }

  void launch(ingot::gpu::sim::Executor& executor, const Command& command) const {
    running = command.kernel;
    const auto found = kernels_.find(command.kernel);
    if (found == kernels_.end()) fail(not_found, "a kernel is launched that has no simulation");
    const ingot::gpu::KernelInfo& kernel = *found->second;
    if (static_cast<int>(command.threads) != kernel.block_threads(lanes_) || command.args_bytes != kernel.args_bytes) {
      fail(launch_failed, "a kernel is launched with another number of threads or bytes than it was compiled for");
    }
    alignas(64) unsigned char args[sizeof command.args];
    std::memcpy(args, command.args, command.args_bytes);
    try {
      executor.run(kernel, args, {command.grid_x, command.grid_y}, command.shared_bytes,
                   ingot::gpu::sim::Schedule::forward);
    } catch (const ingot::Error& error) {
      fail(launch_failed, error.message().c_str());
    }
  }

  const int lanes_;
  const Settings settings_;
  std::unordered_map<std::string, const ingot::gpu::KernelInfo*> kernels_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, std::deque<std::unique_ptr<Command>>> queues_;
  int64_t executed_ = 0;
};

int main_of(char** words) {
  const int lanes = std::atoi(words[1]);
  const auto base = static_cast<uintptr_t>(std::strtoull(words[2], nullptr, 10));
  void* mapped = mmap(nullptr, control_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (mapped == MAP_FAILED) return 1;
  control = static_cast<Control*>(mapped);
  if (mmap(at(base), 2 * space_bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, memory,
           control_bytes) == MAP_FAILED) {
    fail(out_of_memory, "the addresses of device memory are not free");
  }
  struct sigaction on_access{};
  on_access.sa_sigaction = fail_on_access;
  on_access.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &on_access, nullptr);
  sigaction(SIGBUS, &on_access, nullptr);
  Gpu gpu(lanes, settings_of_environment(lanes == 64));
  gpu.serve();
  _exit(0);  // with the threads of streams
}

}  // namespace
}  // namespace strict

int main(int count, char** words) { return count == 3 ? strict::main_of(words) : 2; }
