#include "runtime/runtime.h"

#include <algorithm>
#include <charconv>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/row_order.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/runtime/first_gpu.h"
#include "backend/gpu/sim/sim_device.h"
#include "base/cpu_list.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/processor.h"
#include "ops/device_runs.h"
#include "runtime/device_rates.h"
#include "runtime/device_runs.h"

namespace ingot::runtime {
namespace {

// The N of "cuda:N"; absent for another kind of device.
std::optional<int> index_of(const std::string& device, const std::string& kind) {
  if (device == kind) return 0;
  if (!device.starts_with(kind + ":")) return {};
  int index = -1;
  const char* begin = device.data() + kind.size() + 1;
  const char* end = device.data() + device.size();
  const auto [stop, error] = std::from_chars(begin, end, index);
  return error == std::errc() && stop == end && index >= 0 ? std::optional(index) : std::nullopt;
}

// An environment variable that is 1 or 0; absent when it is not set.
std::optional<bool> switch_of(const char* variable) {
  const char* value = environment(variable);
  if (value == nullptr) return {};
  const std::string text = value;
  if (text != "0" && text != "1") throw_error(ErrorKind::usage, "{} is '{}'; must be 0 or 1", variable, text);
  return text == "1";
}

gpu::DriverDeviceSettings gpu_settings() {
  return {.replays = switch_of("INGOT_GRAPHS"), .wait_for_launches = switch_of("INGOT_GPU_WAIT").value_or(false)};
}

// Whether a committed report shows our kernels running on this architecture (bench/reports/device_runs.tsv).
bool has_run_on(const std::string& architecture) {
  const std::vector<ops::DeviceRun> runs = ops::device_runs(device_runs_table);
  return std::any_of(runs.begin(), runs.end(), [&](const auto& run) { return run.architecture == architecture; });
}

void use_gpu(Runtime& runtime, std::unique_ptr<gpu::GpuDevice> device, std::string model) {
  runtime.device = std::move(device);
  runtime.model = std::move(model);
  if (!has_run_on(runtime.device->arch())) {
    Log(LogLevel::warning)
        .warning(
            "{} ({}): Ingot's kernels for it were compiled and simulated, but never run on such a device; compare with "
            "--device cpu",
            runtime.device->name(), runtime.device->arch());
  }
}

void use_cpu(Runtime& runtime) {
  runtime.device = cpu::make_device();
  runtime.model = cpu_name();
}

// Opens the first GPU that works, and logs which; else the CPU, and logs why if there is a GPU.
void open_any(Runtime& runtime) {
  std::vector<gpu::FoundDriver> drivers;
  drivers.push_back(gpu::find_cuda_driver());
  drivers.push_back(gpu::find_hip_driver());
  gpu::FirstGpu first = gpu::first_gpu(std::move(drivers), gpu_settings());
  const Log log(LogLevel::info);
  if (!first.device) {
    if (first.any) log.warning("device auto: cpu, because no GPU of this machine works: {}", first.missing);
    return use_cpu(runtime);
  }
  log.info("device auto: {}, the first GPU that works ({}, {})", first.device->name(), first.model,
           first.device->arch());
  use_gpu(runtime, std::move(first.device), std::move(first.model));
}

void open_gpu(Runtime& runtime, const std::string& name, gpu::FoundDriver found, const std::string& vendor, int index) {
  if (!found.driver) {
    throw_hint(ErrorKind::unavailable, "`ingot devices` lists the available devices",
               "device '{}': the {} driver was not found: {}", name, vendor, found.reason);
  }
  const std::shared_ptr<gpu::Driver> driver = std::move(found.driver);
  std::unique_ptr<gpu::GpuDevice> device = gpu::make_device(driver, index, gpu_settings());
  use_gpu(runtime, std::move(device), driver->device_name(index));
}

void open_device(Runtime& runtime, const std::string& device) {
  if (device == "auto") return open_any(runtime);
  if (device == "cpu") return use_cpu(runtime);
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
  throw_hint(ErrorKind::usage, "use auto, cpu, cuda:N, hip:N, sim32 or sim64", "device '{}' is not known", device);
}

// The CPU's ops. For a processor that is not known, the fastest order of reading weights is measured once and cached.
void register_cpu_ops(Runtime& runtime) {
  cpu::Levels levels = cpu::machine_levels();
  if (runtime.device->kind() == DeviceKind::cpu) {
    Arena scratch;
    ops::Context context{*runtime.device, runtime.registry, scratch, runtime.threads.get()};
    const CpuRowOrder chosen =
        cpu_row_order(processor_id(), rate_cache(rates_key(runtime)), [&] { return cpu::measure_row_order(context); });
    levels.row_order = chosen.order;
    runtime.weight_order = {cpu::name(chosen.order), chosen.date, chosen.not_cached};
  }
  cpu::register_ops(runtime.registry, levels);
}

}  // namespace

std::unique_ptr<Device> host_memory() { return cpu::make_device(); }

Runtime open_runtime(const std::string& device, std::optional<int64_t> threads, const std::vector<int>& cpus) {
  return open_runtime(device, threads, [&](const std::string&) { return cpus; });
}

Runtime open_runtime(const std::string& device, std::optional<int64_t> threads, const CpusNear& cpus) {
  constexpr int64_t max_threads = 1024;
  if (threads && (*threads < 1 || *threads > max_threads)) {
    throw_error(ErrorKind::usage, "{} threads; must be from 1 to {}", *threads, max_threads);
  }
  Runtime runtime;
  open_device(runtime, device);
  if (const auto* gpu = dynamic_cast<const gpu::GpuDevice*>(runtime.device.get())) runtime.pci_address = gpu->address();
  runtime.cpus = cpus(runtime.pci_address);
  const int64_t automatic = runtime.cpus.empty() ? available_cpus() : std::ssize(runtime.cpus);
  const auto num_threads = static_cast<int>(threads.value_or(std::min(automatic, max_threads)));
  require_cpus(runtime.cpus, num_threads);
  if (!runtime.cpus.empty()) runtime.cpus.resize(static_cast<size_t>(num_threads));
  const bool on_cpu = runtime.device->kind() == DeviceKind::cpu;
  const WorkspaceBytes workspace = on_cpu ? cpu::workspace_bytes(cpu::best_isa()) : no_workspace;
  runtime.threads = std::make_unique<ThreadPool>(num_threads, runtime.cpus, workspace);
  register_cpu_ops(runtime);
  if (!on_cpu) gpu::register_ops(runtime.registry, runtime.device->kind());
  if (const char* restricted = environment("INGOT_OPS")) runtime.registry.select_implementation(restricted);
  return runtime;
}

}  // namespace ingot::runtime
