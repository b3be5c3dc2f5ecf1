// The energy meters of GPUs, on fake vendor libraries.
#include "backend/gpu/runtime/energy_meter.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/backend/gpu/fake_device.h"
#include "tests/backend/gpu/fake_driver.h"

namespace ingot::gpu {
namespace {

template <class Find>
std::string why_not(const Find& find, const char* address) {
  try {
    find(address);
  } catch (const Error& error) {
    return error.message();
  }
  return "found";
}

TEST(EnergyMeter, ReadsNvml) {
  const ScopedVariable variable("INGOT_NVML_LIBRARY", INGOT_FAKE_NVML);
  const auto meter = find_nvml_meter("0000:3b:00.0");
  const double before = meter->joules();
  EXPECT_NEAR(meter->joules() - before, 2.5, 1e-9);
  EXPECT_NE(why_not(find_nvml_meter, "0000:3c:00.0").find("0000:3c:00.0"), std::string::npos);
}

TEST(EnergyMeter, ReadsRocmSmi) {
  const ScopedVariable variable("INGOT_ROCM_SMI_LIBRARY", INGOT_FAKE_ROCM_SMI);
  for (const auto& [address, joules] :
       {std::pair("0000:03:00.0", 0.5), std::pair("0000:3b:00.0", 1.5), std::pair("0001:AF:1f.1", 2.5)}) {
    const auto meter = find_rocm_smi_meter(address);
    const double before = meter->joules();
    EXPECT_NEAR(meter->joules() - before, joules, 1e-6) << address;
  }
  for (const char* address : {"0000:3c:00.0", "0001:3b:00.0", "3b:00.0", "0000:3b:00.0 ", "", "0000:3b:00"}) {
    const std::string why = why_not(find_rocm_smi_meter, address);
    EXPECT_NE(why.find("no device"), std::string::npos) << why;
  }
}

TEST(EnergyMeter, ReportsWhyThereIsNone) {
  const ScopedVariable nvml("INGOT_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1");
  const ScopedVariable rocm("INGOT_ROCM_SMI_LIBRARY", INGOT_FAKE_NVML);
  EXPECT_NE(why_not(find_nvml_meter, "0000:3b:00.0").find("/nonexistent"), std::string::npos);
  EXPECT_NE(why_not(find_rocm_smi_meter, "0000:3b:00.0").find("no function"), std::string::npos);
}

}  // namespace
}  // namespace ingot::gpu
