// The execution environment of a command: a device, its ops, the thread pool.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/registry.h"
#include "tensor/device.h"

namespace ingot::runtime {

// The order in which a CPU reads weights for one to three tokens (cpu::RowOrder).
struct WeightOrder {
  std::string name;        // empty on another device
  std::string date;        // when it was measured; empty if it is known for the processor
  std::string not_cached;  // error message when it could not be cached
};

struct Runtime {
  std::unique_ptr<Device> device;
  std::string model;  // the vendor's name of the device: "NVIDIA H200"
  ops::Registry registry;
  std::unique_ptr<ThreadPool> threads;
  WeightOrder weight_order;
  std::string pci_address;  // of a GPU: "0000:3b:00.0"
  std::vector<int> cpus;    // logical CPUs to which the threads are bound, in order; empty: not bound
};

// Host memory as a device, for what is stored there whatever a command runs on.
std::unique_ptr<Device> host_memory();

// `device`: "auto", "cpu", "cuda:N", "hip:N" ("cuda" and "hip" mean the first), or a simulated GPU, "sim32" or "sim64",
// which is slow and for tests. "auto" is the first GPU that works, else the CPU; the selection and its reason are
// written to standard error. `threads`: when absent, the number of `cpus`, or if that is empty, of CPUs available to
// the process. `cpus`: logical CPUs to which the threads are bound, in order; empty: not bound.
// Environment: INGOT_OPS restricts implementations (ops::Registry::select_implementation); INGOT_GRAPHS=1 or 0 enables
// or disables decoding with recorded launches (GPU graphs; the default is 1 with CUDA and 0 with HIP); INGOT_GPU_WAIT=1
// synchronises after every kernel, so that errors name its op.
// Errors: usage for an unknown device; unavailable for one that this build or machine does not have, saying why; usage
// for CPUs that this process may not use, and for fewer CPUs than threads.
Runtime open_runtime(const std::string& device, std::optional<int64_t> threads, const std::vector<int>& cpus = {});

// The same with the CPUs that `cpus` returns for the device's PCI address (empty: not a GPU).
using CpusNear = std::function<std::vector<int>(const std::string& pci_address)>;
Runtime open_runtime(const std::string& device, std::optional<int64_t> threads, const CpusNear& cpus);

}  // namespace ingot::runtime
