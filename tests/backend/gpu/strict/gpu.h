// The GPU as the strict driver sees it: a process that executes the commands of streams, each stream in its own thread.
// Thread-safe are status(), reached() and wait(); one thread at a time calls the other functions.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "tests/backend/gpu/strict/command.h"
#include "tests/backend/gpu/strict/shared_memory.h"
#include "tests/backend/gpu/strict/status.h"

namespace strict {

// A position in a stream: after its first `number` commands.
struct Mark {
  uint32_t stream = 0;
  uint64_t number = 0;
};

class Gpu {
 public:
  // Starts the process `executable` with warps of `lanes` lanes and maps the shared memory at `base`. `status()` says
  // whether that worked.
  Gpu(const char* executable, int lanes, uintptr_t base);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();

  // The error that ended the GPU's work, or success.
  Status status() const;
  // A number for a new stream; max_streams when there is none left.
  uint32_t make_stream() { return std::min<uint32_t>(streams_++, max_streams); }

  Mark add(const Command& command);   // of the kinds that streams execute
  void send(const Command& command);  // of the other kinds
  Mark mark(uint32_t stream) const { return {stream, added_[stream]}; }
  bool reached(Mark mark) const { return control_->completed[mark.stream].load() >= mark.number; }
  Status wait(Mark mark) const;  // the error when the GPU fails meanwhile

  // Gives the program under test access to page-locked memory, and takes it away.
  void open(Pages pages) const;
  void close(Pages pages) const;

 private:
  bool is_alive() const;
  uint32_t streams_ = 0;
  std::vector<uint64_t> added_ = std::vector<uint64_t>(max_streams);
  Control* control_ = nullptr;
  int socket_ = -1;
  mutable std::atomic<Status> start_ = success;  // a failure that the GPU could not report itself
  pid_t owner_ = 0;
};

}  // namespace strict
