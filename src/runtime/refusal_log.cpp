#include "runtime/refusal_log.h"

#include "backend/gpu/gpu_device.h"

namespace ingot::runtime {

void log_refusals(Device& device, const Log& log) {
  if (auto* gpu = dynamic_cast<gpu::GpuDevice*>(&device)) gpu->set_log(&log);
}

}  // namespace ingot::runtime
