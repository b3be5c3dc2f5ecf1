// The machine as a command uses it: a device, its ops, the threads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/registry.h"
#include "tensor/device.h"

namespace ingot::app {

struct Runtime {
  std::unique_ptr<Device> device;
  std::string model;  // of the device, as its maker calls it: "NVIDIA H200"
  ops::Registry registry;
  std::unique_ptr<ThreadPool> threads;
};

// `device`: "auto", "cpu", "cuda:N", "hip:N" ("cuda" and "hip" mean the first), or a simulated GPU, "sim32" or "sim64",
// which is slow and for tests. "auto" is the first GPU that works, else the CPU; standard error says which and why.
// `threads`: as many as the machine has when absent, or as `cpus` are. `cpus`: logical CPUs to which the threads are
// bound, in their order; empty: none. Environment: INGOT_OPS restricts implementations
// (ops::Registry::restrict_to); INGOT_GRAPHS=1 or 0 has GPUs decode by recorded launches or not (the default is 1 with
// CUDA and 0 with HIP); INGOT_GPU_WAIT=1 waits behind every kernel, so that errors name its op. Errors: usage for a
// device that is not known; unavailable for one that this build or machine does not have, saying why; usage
// for CPUs that this process may not use, and for fewer than threads.
Runtime open_runtime(const std::string& device, std::optional<int64_t> threads, const std::vector<int>& cpus = {});

}  // namespace ingot::app
