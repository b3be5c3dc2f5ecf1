// The energy that a GPU has taken, as its vendor's management library tells it: NVML, ROCm SMI.
#pragma once

#include <memory>
#include <string>

namespace ingot::gpu {

class EnergyMeter {
 public:
  virtual ~EnergyMeter() = default;
  // Since the driver was loaded (NVML) or some time (ROCm SMI). ErrorKind::unavailable when the library does not tell.
  virtual double joules() = 0;
};

// Of the GPU at this address of the PCI bus, "0000:3b:00.0" as its driver tells it. INGOT_NVML_LIBRARY and
// INGOT_ROCM_SMI_LIBRARY name a library file in place of those that are looked for. Errors: unavailable, with the
// reason why there is no meter.
std::unique_ptr<EnergyMeter> find_nvml_meter(const std::string& pci_address);
std::unique_ptr<EnergyMeter> find_rocm_smi_meter(const std::string& pci_address);

}  // namespace ingot::gpu
