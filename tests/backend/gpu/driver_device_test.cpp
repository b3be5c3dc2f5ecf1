// Tests DriverDevice on a driver that only records calls: what it loads and launches, and its error messages.
#include "backend/gpu/runtime/driver_device.h"

#include <gtest/gtest.h>

#include <functional>

#include "backend/gpu/runtime/first_gpu.h"
#include "tensor/arena.h"
#include "tests/backend/gpu/amd_image.h"
#include "tests/backend/gpu/fake_device.h"
#include "tests/backend/gpu/fake_driver.h"
#include "tests/base/error_of.h"

namespace ingot::gpu {
namespace {

constexpr unsigned char fatbin[1] = {};
// With the flags "sramecc any" and "xnack any" of code for all settings.
constexpr AmdImage gfx90a = amd_image(0x53f), gfx942 = amd_image(0x54c), gfx950 = amd_image(0x54f);
constexpr CodeObject object(const char* file, const char* architecture, const AmdImage& image) {
  return {file, architecture, image.data(), image.data() + image.size()};
}
constexpr CodeObject code[] = {{"a.gpu.cpp", "cuda", fatbin, fatbin + 1},
                               object("a.gpu.cpp", "gfx90a", gfx90a),
                               object("a.gpu.cpp", "gfx942", gfx942)};
constexpr KernelInfo kernel{"a.gpu.cpp", "some_kernel", 64, sizeof(int), nullptr, nullptr};

class DriverDeviceTest : public testing::Test {
 protected:
  std::unique_ptr<GpuDevice> device(DeviceKind kind = DeviceKind::cuda, int index = 1,
                                    DriverDeviceSettings settings = {}) {
    settings.code = code;
    return make_device(std::make_shared<FakeDriver>(state_, kind, code), index, settings);
  }
  // The calls since the last one of this function.
  std::vector<std::string> calls() { return std::exchange(state_.calls, {}); }
  static void launch(GpuDevice& gpu, Grid grid = {5, 1}, size_t dynamic_shared_bytes = 0) {
    const int args = 7;
    gpu.launch(kernel, &args, grid, dynamic_shared_bytes);
  }
  using Calls = std::vector<std::string>;

  FakeDriverState state_;
};

TEST_F(DriverDeviceTest, LoadsCodeOnceAndPassesTheKernelArguments) {
  const auto gpu = device();
  EXPECT_EQ(gpu->name(), "cuda:1");
  EXPECT_EQ(gpu->arch(), "sm_90");
  EXPECT_EQ(gpu->warp_width(), 32);
  launch(*gpu);
  launch(*gpu, {6, 1}, 60000);
  launch(*gpu, {7, 1}, 60000);
  EXPECT_EQ(calls(), (Calls{"load a.gpu.cpp cuda", "function some_kernel", "launch some_kernel 5 64 7 on 1 in stream0",
                            "shared 60000", "launch some_kernel 6 64 7 on 1 in stream0",
                            "launch some_kernel 7 64 7 on 1 in stream0"}));
}

// By its ELF header, and without trying others: drivers differ in how they refuse those.
TEST_F(DriverDeviceTest, LoadsTheCodeOfItsArchitecture) {
  state_.architecture = "gfx942";
  const auto gpu = device(DeviceKind::hip, 0);
  EXPECT_EQ(gpu->name(), "hip:0");
  EXPECT_EQ(gpu->arch(), "gfx942");
  EXPECT_EQ(gpu->warp_width(), 64);
  EXPECT_EQ(calls(), (Calls{"load a.gpu.cpp gfx942"}));
}

TEST_F(DriverDeviceTest, ReportsHowTheDriverRefusesItsCode) {
  state_.fails = "load";
  EXPECT_EQ(message_of([&] { device(); }),
            "cuda:1 (FakeGPU, sm_90): the driver refuses the code of a.gpu.cpp for cuda: no binary");
}

TEST(CodeObjects, AreForTheArchitectureOfTheirHeader) {
  EXPECT_EQ(elf_architecture(code[1]), "gfx90a");
  EXPECT_EQ(elf_architecture(object("", "", gfx950)), "gfx950");
  const AmdImage gfx1100 = amd_image(0x041), gfx900 = amd_image(0x02c);
  EXPECT_EQ(elf_architecture(object("", "", gfx1100)), "gfx1100");
  EXPECT_EQ(elf_architecture(object("", "", gfx900)), "");
  EXPECT_EQ(elf_architecture({"", "", gfx942.data(), gfx942.data() + 63}), "");
  AmdImage other = gfx942;
  other[18] = 62;  // x86-64
  EXPECT_EQ(elf_architecture(object("", "", other)), "");
  EXPECT_EQ(elf_architecture(code[0]), "");
}

TEST(CodeObjects, RunOnTheirArchitecture) {
  EXPECT_TRUE(runs_on(code[2], "gfx942"));
  EXPECT_FALSE(runs_on(code[2], "gfx90a"));
  EXPECT_FALSE(runs_on(code[2], "gfx94"));
  const AmdImage unknown = amd_image(0);
  EXPECT_FALSE(runs_on(object("", "gfx942", unknown), ""));
  for (const char* architecture : {"sm_80", "sm_89", "sm_90", "sm_100", "sm_121"}) {
    EXPECT_TRUE(runs_on(code[0], architecture)) << architecture;
  }
  for (const char* architecture : {"sm_75", "sm_", "", "gfx942"}) {
    EXPECT_FALSE(runs_on(code[0], architecture)) << architecture;
  }
}

// The fake ROCm SMI knows this device's address; the fake NVML does not.
TEST_F(DriverDeviceTest, ReadsEnergyFromItsVendorsLibrary) {
  const ScopedVariable nvml("INGOT_NVML_LIBRARY", INGOT_FAKE_NVML);
  const ScopedVariable rocm("INGOT_ROCM_SMI_LIBRARY", INGOT_FAKE_ROCM_SMI);
  state_.architecture = "gfx942";
  const auto amd = device(DeviceKind::hip, 0);
  const std::optional<double> before = amd->joules();
  ASSERT_TRUE(before);
  EXPECT_NEAR(amd->joules().value() - *before, 0.5, 1e-6);
  state_.architecture = "sm_90";
  EXPECT_EQ(device(DeviceKind::cuda, 0)->joules(), std::nullopt);
}

TEST_F(DriverDeviceTest, StreamsEventsAndCopiesCallTheDriver) {
  const auto gpu = device();
  int host = 3;
  void* data = gpu->allocate(sizeof host);
  void* pinned = gpu->allocate_pinned(sizeof host);
  calls();
  {
    const auto event = gpu->make_event();
    gpu->copy_from_host(data, &host, sizeof host);
    EXPECT_EQ(calls(), (Calls{"copy 4 in stream0", "wait for stream0"}));
    gpu->copy_to_host_async(Stream::copy, pinned, data, sizeof host);
    event->record(Stream::copy);
    event->wait_on(Stream::compute);
    event->wait();
    EXPECT_EQ(calls(), (Calls{"copy 4 in stream1", "record event0 in stream1", "make stream0 wait for event0",
                              "wait for event0"}));
    EXPECT_TRUE(event->done());
    state_.fails = "late";
    EXPECT_FALSE(event->done());
    state_.fails.clear();
    gpu->copy_from_host_async(Stream::copy, data, pinned, 0);
    EXPECT_EQ(calls(), Calls{});
    event->record(Stream::to_next);
    event->wait_on(Stream::from_next);
    EXPECT_EQ(calls(), (Calls{"record event0 in urgent stream0", "make urgent stream1 wait for event0"}));
  }
  EXPECT_NE(gpu->native_stream(Stream::compute), gpu->native_stream(Stream::copy));
  EXPECT_NE(gpu->native_context(), nullptr);
  gpu->release(data, sizeof host);  // all streams may use `data`
  EXPECT_EQ(calls(),
            (Calls{"wait for stream0", "wait for stream1", "wait for urgent stream0", "wait for urgent stream1"}));
  gpu->release_host(pinned, sizeof host);
  EXPECT_EQ(state_.alive, 4);  // the streams
}

// Every wait calls the check until it throws, and once at its end: that of a copy, of an event, and the one before
// memory is released.
TEST_F(DriverDeviceTest, TheCheckEndsWaits) {
  const auto gpu = device();
  int host = 3;
  void* data = gpu->allocate(sizeof host);
  const auto event = gpu->make_event();
  int calls_of_check = 0;
  double last = 0;
  gpu->set_wait_check([&](double waited_s) {
    EXPECT_TRUE(waited_s > last || waited_s == 0);
    last = waited_s;
    if (++calls_of_check == 3) throw_error(ErrorKind::unavailable, "rank 1 is gone");
  });
  gpu->copy_from_host(data, &host, sizeof host);  // done at once
  EXPECT_EQ(calls_of_check, 1);
  state_.fails = "late";
  const auto ends = [&](auto wait) {
    calls_of_check = 0;
    last = 0;
    EXPECT_EQ(message_of(wait), "rank 1 is gone");
    EXPECT_EQ(calls_of_check, 3);
  };
  ends([&] { gpu->copy_to_host(&host, data, sizeof host); });
  event->record(Stream::copy);
  ends([&] { event->wait(); });
  calls_of_check = 0;
  last = 0;
  gpu->release(data, sizeof host);  // which cannot throw, and leaves what the device may still use
  EXPECT_EQ(calls_of_check, 3);
  state_.fails = "";
  gpu->set_wait_check({});
  gpu->release(data, sizeof host);
}

TEST_F(DriverDeviceTest, DestroysWhatItCreated) {
  {
    const auto gpu = device();
    launch(*gpu);
    const auto event = gpu->make_event();
    const auto replay = gpu->record([&] { launch(*gpu); });
    EXPECT_EQ(state_.alive, 4);
  }
  EXPECT_EQ(state_.alive, 0);
}

TEST_F(DriverDeviceTest, RecordsAndReplaysLaunches) {
  const auto gpu = device();
  launch(*gpu);
  calls();
  const auto replay = gpu->record([&] { launch(*gpu, {9, 1}); });
  replay->run();
  replay->run();
  EXPECT_EQ(calls(), (Calls{"record stream0", "launch some_kernel 9 64 7 on 1 in stream0", "run graph0 in stream0",
                            "run graph0 in stream0"}));
}

TEST_F(DriverDeviceTest, RefusesToRecordWhatCannotBeReplayed) {
  const auto gpu = device();
  EXPECT_NE(message_of([&] { gpu->record([&] { launch(*gpu); }); }).find("a kernel is loaded while"),
            std::string::npos);
  EXPECT_NE(message_of([&] { gpu->record([&] { gpu->allocate(1); }); }).find("memory is allocated while"),
            std::string::npos);
  EXPECT_EQ(state_.alive, 2);  // the two streams: the incomplete graph is destroyed
}

TEST_F(DriverDeviceTest, GraphsAreUsedUntilOneIsIncomplete) {
  EXPECT_FALSE(device(DeviceKind::cuda, 0, {.replays = false})->replays());
  for (const auto& [kind, architecture] :
       {std::pair(DeviceKind::cuda, "sm_90"), std::pair(DeviceKind::hip, "gfx90a")}) {
    state_ = {.architecture = architecture};
    const auto work = [](GpuDevice& gpu) {
      launch(gpu, {9, 1});
      launch(gpu, {9, 1});
    };
    const auto gpu = device(kind), strict = device(kind, 0, {.replays = true});
    work(*gpu);
    work(*strict);
    const int alive = state_.alive;
    EXPECT_NE(gpu->record([&] { work(*gpu); }), nullptr);
    EXPECT_TRUE(gpu->replays());

    state_.forgotten = 1;
    EXPECT_EQ(gpu->record([&] { work(*gpu); }), nullptr);
    EXPECT_FALSE(gpu->replays());
    EXPECT_NE(message_of([&] { strict->record([&] { work(*strict); }); }).find("recorded 1 of at least 2 launches"),
              std::string::npos);

    // With two nodes for one call of a library the missing launch does not show.
    state_.further = 2;
    const bool hip = kind == DeviceKind::hip;
    {
      const auto doubtful = device(kind);
      work(*doubtful);
      EXPECT_EQ(doubtful->record([&] { work(*doubtful); }) == nullptr, hip);
      EXPECT_EQ(doubtful->replays(), !hip);
    }
    EXPECT_NE(strict->record([&] { work(*strict); }), nullptr);

    state_.forgotten = state_.further = 0;
    state_.fails = "end_recording";
    const auto other = device(kind);
    EXPECT_EQ(other->record([] {}), nullptr);
    EXPECT_FALSE(other->replays());
    EXPECT_NE(message_of([&] { strict->record([] {}); }).find("not permitted"), std::string::npos);
    EXPECT_LE(state_.alive, alive + 2);  // streams: graphs are destroyed
  }
}

TEST_F(DriverDeviceTest, ErrorsNameTheOp) {
  const auto gpu = device();
  int host = 0;
  void* data = gpu->allocate(sizeof host);
  const Operand operands[] = {{"bf16", Shape{4, 64}}, {"q8_0", Shape{8, 64}}};
  gpu->set_current_op("linear", operands);
  launch(*gpu);
  gpu->set_current_op("later", {});
  state_.fails = "copy";
  EXPECT_EQ(message_of([&] { gpu->copy_to_host(&host, data, sizeof host); }),
            "cuda:1: illegal address; the last op launched was linear(bf16[4, 64], q8_0[8, 64]), kernel some_kernel");
  state_.fails = "wait";
  EXPECT_NE(message_of([&] { gpu->make_event()->wait(); }).find("linear(bf16[4, 64]"), std::string::npos);
  state_.fails = "launch";
  gpu->set_current_op("linear", operands);
  EXPECT_EQ(message_of([&] { launch(*gpu, {5, 2}); }),
            "linear(bf16[4, 64], q8_0[8, 64]) on cuda:1: kernel some_kernel, grid 5 x 2 of 64 threads: too many "
            "resources");
  state_.fails.clear();
  gpu->release(data, sizeof host);
}

TEST_F(DriverDeviceTest, WithLaunchWaitingErrorsNameTheKernel) {
  const auto gpu = device(DeviceKind::cuda, 0, {.wait_for_launches = true});
  const Operand operands[] = {{"f32", Shape{3}}};
  gpu->set_current_op("scale", operands);
  state_.fails = "wait";
  EXPECT_EQ(message_of([&] { launch(*gpu); }), "scale(f32[3]) on cuda:0: kernel some_kernel: illegal address");
}

TEST_F(DriverDeviceTest, OutOfMemoryErrorsNameTheArena) {
  const auto gpu = device();
  EXPECT_EQ(message_of([&] { Arena(*gpu, 600, "saved activations"); }),
            "saved activations on cuda:1: 600 bytes of memory are needed, 500 are available (no memory)");
}

TEST_F(DriverDeviceTest, RefusesMissingDevicesAndDevicesWithoutCode) {
  EXPECT_NE(message_of([&] { device(DeviceKind::cuda, 2); }).find("'cuda:2' does not exist: there are 2 devices"),
            std::string::npos);
  state_.architecture = "gfx1030";
  EXPECT_EQ(message_of([&] { device(DeviceKind::hip, 0); }),
            "hip:0 (FakeGPU, gfx1030): this build has no code of a.gpu.cpp for this device, only for: gfx90a, gfx942");
  state_.architecture = "sm_75";
  EXPECT_EQ(message_of([&] { device(); }),
            "cuda:1 (FakeGPU, sm_75): this build has no code of a.gpu.cpp for this device, only for: cuda");
  EXPECT_NE(message_of([&] {
              make_device(std::make_shared<FakeDriver>(state_, DeviceKind::cuda, code), 0, {.code = {}});
            }).find("this build has no GPU code"),
            std::string::npos);
}

// The arguments of kernel `scale_f32` in elementwise.gpu.cpp.
struct ScaleArgs {
  float* y;
  const float* x;
  int32_t from;
  float factor;
  int64_t n;
};

class FirstGpuTest : public testing::Test {
 protected:
  FirstGpuTest() {
    for (FakeDriverState& state : state_) {
      state.memory = 1 << 20;
      state.compute = [](const std::string& kernel, const void* args) {
        ASSERT_EQ(kernel.find("scale_f32"), 0U);
        const auto& a = *static_cast<const ScaleArgs*>(args);
        for (int64_t i = 0; i < a.n; ++i) a.y[i] = a.factor * a.x[i];
      };
    }
    state_[1].architecture = "gfx942";
  }
  FirstGpu first(bool cuda = true, bool hip = true) {
    std::vector<FoundDriver> drivers(2);
    drivers[0].reason = "no libcuda.so.1";
    drivers[1].reason = "no libamdhip64.so.7";
    if (cuda) drivers[0].driver = std::make_unique<FakeDriver>(state_[0], DeviceKind::cuda, elementwise);
    if (hip) drivers[1].driver = std::make_unique<FakeDriver>(state_[1], DeviceKind::hip, elementwise);
    return first_gpu(std::move(drivers), {.code = elementwise});
  }
  static constexpr CodeObject elementwise[] = {{"elementwise.gpu.cpp", "cuda", fatbin, fatbin + 1},
                                               object("elementwise.gpu.cpp", "gfx942", gfx942)};
  FakeDriverState state_[2];
};

TEST_F(FirstGpuTest, PrefersCudaOverHip) {
  const FirstGpu both = first();
  ASSERT_NE(both.device, nullptr);
  EXPECT_EQ(both.device->name(), "cuda:0");
  EXPECT_EQ(both.model, "FakeGPU");
  const FirstGpu amd = first(false);
  ASSERT_NE(amd.device, nullptr);
  EXPECT_EQ(amd.device->name(), "hip:0");
  EXPECT_EQ(amd.device->arch(), "gfx942");
}

TEST_F(FirstGpuTest, IsTheFirstThatPassesTheSelfTest) {
  int launches = 0;
  const auto right = state_[0].compute;
  state_[0].compute = [&](const std::string& kernel, const void* args) {
    if (++launches > 1) right(kernel, args);  // the first device computes nothing
  };
  const FirstGpu second = first();
  ASSERT_NE(second.device, nullptr);
  EXPECT_EQ(second.device->name(), "cuda:1");
}

TEST_F(FirstGpuTest, ReportsWhyThereIsNone) {
  state_[0].compute = {};
  state_[1].fails = "devices";
  const FirstGpu none = first();
  EXPECT_EQ(none.device, nullptr);
  EXPECT_EQ(none.missing,
            "cuda:0 gives wrong results: 3 x 1 is 1; cuda:1 gives wrong results: 3 x 1 is 1; no permission");
  EXPECT_TRUE(none.any);
  EXPECT_EQ(first(false, false).missing, "no libcuda.so.1; no libamdhip64.so.7");
  EXPECT_FALSE(first(false, false).any);
  state_[0].devices = 0;
  EXPECT_EQ(first(true, false).missing, "1 (libfake.so) found no device; no libamdhip64.so.7");
  state_[0].devices = 1;
  std::vector<FoundDriver> drivers(1);
  drivers[0].driver = std::make_unique<FakeDriver>(state_[0], DeviceKind::cuda, elementwise);
  const FirstGpu without_code = first_gpu(std::move(drivers), {.code = {}});
  EXPECT_TRUE(without_code.any);
  EXPECT_EQ(without_code.missing, "this build has no GPU code");
}

TEST(FindDriver, ReportsWhyThereIsNone) {
  setenv("INGOT_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
  const FoundDriver found = find_cuda_driver();
  unsetenv("INGOT_CUDA_LIBRARY");
  EXPECT_EQ(found.driver, nullptr);
  EXPECT_NE(found.reason.find("/nowhere/libcuda.so.1"), std::string::npos) << found.reason;
}

TEST(FindDriver, NamesTheMissingFunction) {
  setenv("INGOT_HIP_LIBRARY", "libm.so.6", 1);
  const FoundDriver found = find_hip_driver();
  unsetenv("INGOT_HIP_LIBRARY");
  EXPECT_EQ(found.driver, nullptr);
  EXPECT_NE(found.reason.find("libm.so.6 has no function hipInit"), std::string::npos) << found.reason;
}

}  // namespace
}  // namespace ingot::gpu
