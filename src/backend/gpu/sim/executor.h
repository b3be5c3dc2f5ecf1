// Runs simulated kernels one block after another. The threads of a block are fibers, which switch only where they wait
// for one another. Detects wrong indices, missing barriers and code that assumes 32 lanes. It does not detect data
// races between blocks and says nothing about speed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/gpu/kernel.h"

namespace ingot::gpu::sim {

// The order of the blocks, and that in which the threads of a block start and resume.
enum class Schedule { forward, backward, random };

// One host thread uses an Executor at a time.
class Executor {
 public:
  explicit Executor(int width);  // lanes per warp: 32 or 64
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns when every block has run. Shared memory is filled with 0xff bytes (NaN) before each block.
  // ErrorKind::internal, naming kernel, block and line, when threads wait for one that has ended or lanes of a warp
  // have diverged.
  void run(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_shared_bytes, Schedule schedule);

  class State;  // what the functions of thread.h call

 private:
  std::unique_ptr<State> state_;
};

}  // namespace ingot::gpu::sim
