#include "app/runtime.h"

#include <cstdlib>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"

namespace ingot::app {

Runtime open_runtime(const std::string& device, std::optional<int64_t> threads) {
  if (device != "auto" && device != "cpu") {
    const bool known = device.starts_with("cuda") || device.starts_with("hip") || device.starts_with("sim");
    if (known) {
      throw_hint(ErrorKind::unavailable, "use --device cpu", "device '{}': this build has CPU support only", device);
    }
    throw_hint(ErrorKind::usage, "auto, cpu, cuda:N or hip:N", "device '{}' is not known", device);
  }
  if (threads && (*threads < 1 || *threads > 1024)) {
    throw_error(ErrorKind::usage, "{} threads; from 1 to 1024", *threads);
  }
  Runtime runtime;
  runtime.device = cpu::make_device();
  cpu::register_ops(runtime.registry);
  if (const char* restricted = std::getenv("INGOT_OPS")) runtime.registry.restrict_to(restricted);
  runtime.threads = std::make_unique<ThreadPool>(threads ? static_cast<int>(*threads) : available_cpus());
  return runtime;
}

}  // namespace ingot::app
