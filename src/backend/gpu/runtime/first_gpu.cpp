#include "backend/gpu/runtime/first_gpu.h"

#include <fmt/format.h>

#include "backend/gpu/ops.h"
#include "base/error.h"
#include "ops/elementwise.h"

namespace ingot::gpu {
namespace {

// Tests memory, copies and one of our kernels by computing 3 x for some x. Returns what fails; empty if nothing does.
std::string failed_test(GpuDevice& device) {
  ops::Registry registry;
  register_ops(registry, device.kind());
  Arena scratch;
  ops::Context context{device, registry, scratch, nullptr};
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Buffer memory(device, values.size() * sizeof(float));
  const Tensor x = memory.view(DType::f32, Shape{std::ssize(values)});
  device.copy_from_host(x.data, values.data(), x.bytes());
  ops::scale(context, x, x, 3);
  device.copy_to_host(values.data(), x.data, x.bytes());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 3 * static_cast<float>(i)) {
      return fmt::format("{} gives wrong results: 3 x {} is {}", device.name(), i, values[i]);
    }
  }
  return {};
}

}  // namespace

FirstGpu first_gpu(std::vector<FoundDriver> drivers, const DriverDeviceSettings& settings) {
  FirstGpu first;
  const auto add_reason = [&](const std::string& reason) {
    first.missing += fmt::format("{}{}", first.missing.empty() ? "" : "; ", reason);
  };
  for (FoundDriver& found : drivers) {
    if (!found.driver) {
      add_reason(found.reason);
      continue;
    }
    const std::shared_ptr<Driver> driver = std::move(found.driver);
    try {
      const int count = driver->num_devices();
      if (count == 0) add_reason(fmt::format("{} ({}) found no device", driver->version(), driver->library()));
      first.any |= count > 0;
      if (count > 0 && settings.code.empty()) {
        add_reason("this build has no GPU code");
        continue;
      }
      for (int index = 0; index < count; ++index) {
        try {
          std::unique_ptr<GpuDevice> device = make_device(driver, index, settings);
          const std::string fault = failed_test(*device);
          if (fault.empty()) {
            first.device = std::move(device);
            first.model = driver->device_name(index);
            return first;
          }
          add_reason(fault);
        } catch (const Error& error) {
          add_reason(error.message());
        }
      }
    } catch (const Error& error) {
      add_reason(error.message());
    }
  }
  return first;
}

}  // namespace ingot::gpu
