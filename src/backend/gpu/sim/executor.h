// Runs simulated kernels: block after block, the threads of a block as fibers, which change places only where they wait
// for one another. Finds wrong indices, missing barriers and code that takes 32 lanes for granted; not data races
// between blocks, and it says nothing of speed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/gpu/kernel.h"

namespace ingot::gpu::sim {

// In which order the threads of a block start and go on.
enum class Schedule { forward, backward, random };

// One host thread uses an Executor at a time.
class Executor {
 public:
  explicit Executor(int width);  // lanes a warp: 32 or 64
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns when every block has run. Shared memory is filled with 0xff bytes (NaN) before each block.
  // ErrorKind::internal naming kernel, block and line when threads wait for one that has ended, or lanes of a warp have
  // diverged.
  void run(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_shared_bytes, Schedule schedule);

  class State;  // what thread.h calls

 private:
  std::unique_ptr<State> state_;
};

}  // namespace ingot::gpu::sim
