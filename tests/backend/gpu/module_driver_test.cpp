// The CUDA and HIP drivers, on fake vendor libraries.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backend/gpu/runtime/driver.h"
#include "base/error.h"
#include "tests/backend/gpu/fake_device.h"

namespace ingot::gpu {
namespace {

struct Vendor {
  DeviceKind kind;
  const char* name;
  const char* variable;
  const char* fake;
  const char* version;
  const char* architecture;
  const char* out_of_memory;
  FoundDriver (*find)();
};

const Vendor vendors[] = {{DeviceKind::cuda, "CUDA", "INGOT_CUDA_LIBRARY", INGOT_FAKE_CUDA, "CUDA 13.1", "sm_90",
                           "CUDA_ERROR_OUT_OF_MEMORY", find_cuda_driver},
                          {DeviceKind::hip, "HIP", "INGOT_HIP_LIBRARY", INGOT_FAKE_HIP, "HIP 6.3.42134", "gfx90a",
                           "hipErrorOutOfMemory", find_hip_driver}};

class ModuleDriverTest : public testing::TestWithParam<Vendor> {
 protected:
  void SetUp() override {
    const ScopedVariable variable(GetParam().variable, GetParam().fake);
    FoundDriver found = GetParam().find();
    ASSERT_NE(found.driver, nullptr) << found.reason;
    driver_ = std::move(found.driver);
  }
  // Launches the kernel with the arguments that the fake expects.
  void twice(Driver::Function function, float* data, int64_t n, Driver::StreamHandle stream) {
    const struct {
      float* data;
      int64_t n;
    } args{data, n};
    driver_->launch(function, {3, 2}, 64, 512, &args, stream);
  }
  std::unique_ptr<Driver> driver_;
};

TEST_P(ModuleDriverTest, ReportsDevicesAndVersions) {
  EXPECT_EQ(driver_->kind(), GetParam().kind);
  EXPECT_EQ(driver_->library(), GetParam().fake);
  EXPECT_EQ(driver_->version(), GetParam().version);
  EXPECT_EQ(driver_->num_devices(), 2);
  EXPECT_EQ(driver_->device_name(1), "Fake 71");
  EXPECT_EQ(driver_->memory_bytes(0), size_t{70} << 20);
  EXPECT_EQ(driver_->architecture(1), GetParam().architecture);
  EXPECT_EQ(driver_->free_bytes(), size_t{1} << 19);
  EXPECT_EQ(driver_->pci_address(0), "0000:3b:00.0");
  EXPECT_EQ(driver_->pci_address(1), "0001:af:1f.1");
}

TEST_P(ModuleDriverTest, UsesTheRequestedDevice) {
  driver_->use(1);
  void* const context = driver_->context();
  EXPECT_EQ(context != nullptr, GetParam().kind == DeviceKind::cuda);
  driver_->use(0);
  EXPECT_EQ(driver_->context() != context, GetParam().kind == DeviceKind::cuda);
  driver_->use(1);
  EXPECT_EQ(driver_->context(), context);
  EXPECT_THROW(driver_->use(2), Error);
}

TEST_P(ModuleDriverTest, CopiesMemory) {
  auto* data = static_cast<float*>(driver_->allocate(16));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(data[i], 0.0F) << i;
  Driver::StreamHandle stream = driver_->make_stream(false);
  auto* host = static_cast<float*>(driver_->allocate_pinned(16));
  for (int i = 0; i < 4; ++i) host[i] = static_cast<float>(i);
  driver_->copy_to_device(data, host, 16, stream);
  std::memset(host, 0, 16);
  driver_->copy_to_host(host, data, 16, stream);
  driver_->synchronize(stream);
  EXPECT_EQ(host[3], 3.0F);
  driver_->release_host(host);
  driver_->release_stream(stream);
  driver_->release(data);
}

TEST_P(ModuleDriverTest, NamesMissingLibrariesFunctionsAndDevices) {
  try {
    driver_->allocate(size_t{1} << 30);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_EQ(error.message(),
              std::string(GetParam().name) + ": 1073741824 bytes of memory: " + GetParam().out_of_memory + " (2)");
  }
  try {
    driver_->device_name(7);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_NE(error.message().find("device 7"), std::string::npos) << error.message();
  }
}

TEST_P(ModuleDriverTest, OrdersStreamsByEvents) {
  Driver::StreamHandle stream = driver_->make_stream(true);
  Driver::EventHandle event = driver_->make_event();
  driver_->record(event, stream);
  driver_->wait_on(stream, event);
  EXPECT_FALSE(driver_->done(event));
  EXPECT_TRUE(driver_->done(event));
  driver_->wait(event);
  driver_->release_event(event);
  driver_->release_stream(stream);
}

TEST_P(ModuleDriverTest, RunsAndRecordsKernels) {
  EXPECT_THROW(driver_->load("of another device"), Error);
  EXPECT_THROW(driver_->load("broken"), Error);
  Driver::Module module = driver_->load("code");
  EXPECT_THROW(driver_->function(module, "thrice"), Error);
  Driver::Function function = driver_->function(module, "twice");
  driver_->set_max_dynamic_shared(function, 100 << 10);
  std::vector<float> data{1, 2, 3};
  Driver::StreamHandle stream = driver_->make_stream(false);
  twice(function, data.data(), 3, stream);
  EXPECT_EQ(data, (std::vector<float>{2, 4, 6}));
  driver_->begin_capture(stream);
  twice(function, data.data(), 2, stream);
  twice(function, data.data(), 1, stream);
  const auto [graph, nodes] = driver_->end_capture(stream);
  EXPECT_EQ(nodes, 2U);
  EXPECT_EQ(data, (std::vector<float>{2, 4, 6}));
  driver_->run(graph, stream);
  EXPECT_EQ(data, (std::vector<float>{8, 8, 6}));
  driver_->release_graph(graph);
  driver_->release_stream(stream);
}

INSTANTIATE_TEST_SUITE_P(Vendors, ModuleDriverTest, testing::ValuesIn(vendors),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ingot::gpu
