// Energy of GPUs, by vendors' libraries that are fakes.
#include "backend/gpu/runtime/energy_meter.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/backend/gpu/fake_driver.h"
#include "tests/backend/gpu/pretend_device.h"

namespace ingot::gpu {
namespace {

TEST(EnergyMeter, OfNvml) {
  const Variable variable("INGOT_NVML_LIBRARY", INGOT_FAKE_NVML);
  const FoundMeter found = find_nvml_meter("0000:3b:00.0");
  ASSERT_NE(found.meter, nullptr) << found.reason;
  const double before = found.meter->joules();
  EXPECT_NEAR(found.meter->joules() - before, 2.5, 1e-9);
  EXPECT_NE(find_nvml_meter("0000:3c:00.0").reason.find("0000:3c:00.0"), std::string::npos);
}

TEST(EnergyMeter, OfRocmSmi) {
  const Variable variable("INGOT_ROCM_SMI_LIBRARY", INGOT_FAKE_ROCM_SMI);
  for (const auto& [address, joules] :
       {std::pair("0000:03:00.0", 0.5), std::pair("0000:3b:00.0", 1.5), std::pair("0001:AF:1f.1", 2.5)}) {
    const FoundMeter found = find_rocm_smi_meter(address);
    ASSERT_NE(found.meter, nullptr) << found.reason;
    const double before = found.meter->joules();
    EXPECT_NEAR(found.meter->joules() - before, joules, 1e-6) << address;
  }
  for (const char* address : {"0000:3c:00.0", "0001:3b:00.0", "3b:00.0", "0000:3b:00.0 ", "", "0000:3b:00"}) {
    const FoundMeter found = find_rocm_smi_meter(address);
    EXPECT_EQ(found.meter, nullptr) << address;
    EXPECT_NE(found.reason.find("no device"), std::string::npos) << found.reason;
  }
}

TEST(EnergyMeter, IsNotThere) {
  const Variable nvml("INGOT_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1");
  const Variable rocm("INGOT_ROCM_SMI_LIBRARY", INGOT_FAKE_NVML);
  EXPECT_NE(find_nvml_meter("0000:3b:00.0").reason.find("/nonexistent"), std::string::npos);
  EXPECT_NE(find_rocm_smi_meter("0000:3b:00.0").reason.find("no function"), std::string::npos);
}

}  // namespace
}  // namespace ingot::gpu
