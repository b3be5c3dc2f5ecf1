#include "app/runtime.h"

#include <charconv>
#include <cstdlib>

#include "backend/cpu/cpu_device.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/runtime/driver_device.h"
#include "backend/gpu/sim/sim_device.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"

namespace ingot::app {
namespace {

// The N of "cuda:N"; absent when the text is not this kind's.
std::optional<int> index_of(const std::string& device, const std::string& kind) {
  if (device == kind) return 0;
  if (!device.starts_with(kind + ":")) return {};
  int index = -1;
  const char* begin = device.data() + kind.size() + 1;
  const char* end = device.data() + device.size();
  const auto [stop, error] = std::from_chars(begin, end, index);
  return error == std::errc() && stop == end && index >= 0 ? std::optional(index) : std::nullopt;
}

void open_gpu(Runtime& runtime, const std::string& name, gpu::FoundDriver found, const std::string& vendor, int index) {
  if (!found.driver) {
    throw_hint(ErrorKind::unavailable, "`ingot devices` lists what there is", "device '{}': there is no {} driver: {}",
               name, vendor, found.reason);
  }
  const std::shared_ptr<gpu::Driver> driver = std::move(found.driver);
  runtime.device = gpu::make_device(driver, index);
  runtime.model = driver->device_name(index);
  // To go, architecture by architecture, as reports of runs on them are committed to bench/reports.
  Log(LogLevel::warning)
      .warning(
          "{} ({}): our kernels for it are compiled and simulated, and have never run on one; compare with --device "
          "cpu",
          runtime.device->name(), runtime.device->arch());
}

void open_device(Runtime& runtime, const std::string& device) {
  if (device == "auto" || device == "cpu") {
    runtime.device = cpu::make_device();
    runtime.model = cpu_name();
    return;
  }
  if (device == "sim32" || device == "sim64") {
    runtime.device = gpu::sim::make_device(device == "sim32" ? 32 : 64);
    runtime.model = "simulation on " + cpu_name();
    return;
  }
  if (const auto index = index_of(device, "cuda")) {
    return open_gpu(runtime, device, gpu::find_cuda_driver(), "CUDA", *index);
  }
  if (const auto index = index_of(device, "hip")) {
    return open_gpu(runtime, device, gpu::find_hip_driver(), "HIP", *index);
  }
  throw_hint(ErrorKind::usage, "auto, cpu, cuda:N, hip:N, sim32 or sim64", "device '{}' is not known", device);
}

}  // namespace

Runtime open_runtime(const std::string& device, std::optional<int64_t> threads) {
  if (threads && (*threads < 1 || *threads > 1024)) {
    throw_error(ErrorKind::usage, "{} threads; from 1 to 1024", *threads);
  }
  Runtime runtime;
  open_device(runtime, device);
  cpu::register_ops(runtime.registry);
  if (runtime.device->kind() != DeviceKind::cpu) gpu::register_ops(runtime.registry, runtime.device->kind());
  if (const char* restricted = std::getenv("INGOT_OPS")) runtime.registry.restrict_to(restricted);
  runtime.threads = std::make_unique<ThreadPool>(threads ? static_cast<int>(*threads) : available_cpus());
  return runtime;
}

}  // namespace ingot::app
