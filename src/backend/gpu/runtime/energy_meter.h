// A GPU's energy consumption, as reported by its vendor's management library: NVML or ROCm SMI.
#pragma once

#include <memory>
#include <string>

namespace ingot::gpu {

class EnergyMeter {
 public:
  virtual ~EnergyMeter() = default;
  // Energy consumed since the driver was loaded (NVML) or since an unspecified time (ROCm SMI). ErrorKind::unavailable
  // when the library does not report it.
  virtual double joules() = 0;
};

// The meter of the GPU at this PCI bus address, "0000:3b:00.0", as its driver reports it. INGOT_NVML_LIBRARY and
// INGOT_ROCM_SMI_LIBRARY name a library file to load instead of the default names. Errors: unavailable, with the reason
// why there is no meter.
std::unique_ptr<EnergyMeter> find_nvml_meter(const std::string& pci_address);
std::unique_ptr<EnergyMeter> find_rocm_smi_meter(const std::string& pci_address);

}  // namespace ingot::gpu
