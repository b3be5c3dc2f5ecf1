// Devices on the strict driver: our kernels run there with the bits of the simulated devices, and what the drivers'
// documentation forbids is found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "backend/gpu/kernels.h"
#include "backend/gpu/runtime/driver_device.h"
#include "backend/gpu/runtime/first_gpu.h"
#include "base/error.h"
#include "base/shared_library.h"
#include "tests/backend/gpu/fake_device.h"
#include "tests/backend/gpu/strict/test_code.h"
#include "tests/base/error_of.h"
#include "tests/locations.h"
#include "tests/sanitized.h"

namespace ingot::gpu {
namespace {

struct Vendor {
  DeviceKind kind;
  const char* name;
  const char* variable;
  const char* const* library;
  const char* architecture;
  int lanes;
  FoundDriver (*find)();
};
const Vendor vendors[] = {{DeviceKind::cuda, "CUDA", "INGOT_CUDA_LIBRARY", &strict_cuda, "sm_90", 32, find_cuda_driver},
                          {DeviceKind::hip, "HIP", "INGOT_HIP_LIBRARY", &strict_hip, "gfx942", 64, find_hip_driver}};

// The kernel of this build with the name.
const KernelInfo& kernel(const std::string& name) {
  for (const KernelInfo* each : kernels()) {
    if (name == each->name) return *each;
  }
  throw_error(ErrorKind::internal, "there is no kernel {}", name);
}

// The arguments of kernel `scale_f32` in elementwise.gpu.cpp: y = factor x.
struct ScaleArgs {
  float* y;
  const float* x;
  int32_t from;
  float factor;
  int64_t n;
};

class StrictDriverTest : public testing::TestWithParam<Vendor> {
 protected:
  bool is_cuda() const { return GetParam().kind == DeviceKind::cuda; }
  std::shared_ptr<Driver> find() const {
    const ScopedVariable variable(GetParam().variable, *GetParam().library);
    FoundDriver found = GetParam().find();
    if (!found.driver) throw_error(ErrorKind::internal, "{}", found.reason);
    return std::move(found.driver);
  }
  std::unique_ptr<GpuDevice> device(int index = 0) const { return make_device(find(), index, {.code = test_code()}); }

  // The driver's function `cuda`, or `hip`, with integer and pointer arguments.
  template <class... Args>
  int call(const char* cuda, const char* hip, Args... args) {
    return library_.function<int(Args...)>(is_cuda() ? cuda : hip)(args...);
  }
  SharedLibrary library_{{*GetParam().library}, {}};
};

TEST_P(StrictDriverTest, PassesTheSelfTest) {
  std::vector<FoundDriver> drivers(1);
  const ScopedVariable variable(GetParam().variable, *GetParam().library);
  drivers[0] = GetParam().find();
  const FirstGpu first = first_gpu(std::move(drivers), {.code = test_code()});
  ASSERT_NE(first.device, nullptr) << first.missing;
  EXPECT_EQ(first.device->arch(), GetParam().architecture);
  EXPECT_EQ(first.device->warp_width(), GetParam().lanes);
  EXPECT_EQ(first.model, "Strict GPU 0");
}

TEST_P(StrictDriverTest, ComputesTheBitsOfTheSimulatedDevice) {
  const ScopedVariable no_blas(is_cuda() ? "INGOT_CUBLASLT_LIBRARY" : "INGOT_HIPBLASLT_LIBRARY", "/nowhere");
  const ScopedVariable no_cudnn("INGOT_CUDNN_LIBRARY", "/nowhere");
  const auto strict = device();
  const auto simulated = sim::make_device(GetParam().lanes);
  const int few = sanitized ? 2 : 12;
  // Compares the first cases of an op, by one implementation on both or by that which each prefers.
  const auto compare = [&](const std::string& op, const std::string& implementation) {
    ops::Registry of_strict, of_simulated;
    register_ops(of_strict, strict->kind());
    register_ops(of_simulated, DeviceKind::sim);
    if (!implementation.empty()) {
      of_strict.select_implementation(op, implementation);
      of_simulated.select_implementation(op, implementation);
    }
    int compared = 0;
    for (const ops::testing::OpCase& op_case : ops::testing::op_cases()) {
      if (op_case.op != op || op_case.timing_only) continue;
      if (compared == few) break;
      Arena none;
      ops::Context on_strict{*strict, of_strict, none, nullptr};
      ops::Context on_simulated{*simulated, of_simulated, none, nullptr};
      const auto bits = ops::testing::output_bytes(on_strict, op_case);
      EXPECT_EQ(bits, ops::testing::output_bytes(on_simulated, op_case)) << op << " " << op_case.name;
      compared += bits.empty() ? 0 : 1;
    }
    EXPECT_EQ(compared, few) << op << " " << implementation;
  };
  compare("rms_norm", "");
  compare("glu", "");
  compare("matmul", "");
  compare("attention", "simt");
  compare("attention", "mma");
  compare("attention_backward", "mma");
  if (is_cuda()) {
    compare("attention", "sm90");
    compare("attention_backward", "sm90");
  }
}

TEST_P(StrictDriverTest, RunsGraphs) {
  const auto gpu = device();
  const Buffer memory(*gpu, 64 * sizeof(float));
  auto* data = static_cast<float*>(memory.data());
  std::vector<float> values(64, 1.0F);
  gpu->copy_from_host(data, values.data(), 64 * sizeof(float));
  const ScaleArgs args{data, data, 0, 2.0F, 64};
  gpu->launch(kernel("scale_f32"), &args, {1, 1}, 0);
  const auto graph = gpu->record([&] { gpu->launch(kernel("scale_f32"), &args, {1, 1}, 0); });
  graph->run();
  graph->run();
  gpu->copy_to_host(values.data(), data, 64 * sizeof(float));
  EXPECT_EQ(values, std::vector<float>(64, 8.0F));
}

TEST_P(StrictDriverTest, RefusesWhatTheDriverDoes) {
  const auto driver = find();
  driver->use(0);
  EXPECT_NE(message_of([&] { driver->load("nothing"); }).find("(200)"), std::string::npos);
  for (const CodeObject& code : test_code()) {
    if (code.architecture != "gfx90a" || is_cuda()) continue;
    // ROCm 7, which the settings describe.
    EXPECT_NE(message_of([&] { driver->load(code.begin); }).find("hipErrorNoBinaryForGpu (209)"), std::string::npos);
    break;
  }
  const KernelInfo& scale = kernel("scale_f32");
  const CodeObject* own = nullptr;
  for (const CodeObject& code : test_code()) {
    if (code.file == scale.file && runs_on(code, driver->architecture(0)) &&
        (code.architecture == "cuda") == is_cuda()) {
      own = &code;
    }
  }
  ASSERT_NE(own, nullptr);
  Driver::Module module = driver->load(own->begin);
  EXPECT_NE(message_of([&] { driver->function(module, "no_kernel"); }).find("(500)"), std::string::npos);
  Driver::Function function = driver->function(module, scale.name);
  Driver::StreamHandle stream = driver->make_stream(false);
  const ScaleArgs args{};
  const auto refused = [&](Grid grid, int threads, size_t shared, Driver::StreamHandle in) {
    return message_of([&] { driver->launch(function, grid, threads, shared, &args, in); });
  };
  EXPECT_NE(refused({1, 1}, 1025, 0, stream).find("(1)"), std::string::npos);
  EXPECT_NE(refused({1, 65536}, 256, 0, stream).find("(1)"), std::string::npos);
  EXPECT_NE(refused({int64_t{1} << 31, 1}, 1, 0, stream).find("(1)"), std::string::npos);
  EXPECT_NE(refused({1, 1}, 256, (size_t{64} << 10) + 1, stream).find("(1)"), std::string::npos);
  if (!is_cuda()) EXPECT_NE(refused({1 << 24, 1}, 256, 0, stream).find("(9)"), std::string::npos);
  if (is_cuda()) EXPECT_NE(message_of([&] { driver->set_max_dynamic_shared(function, 240000); }), "");
  driver->use(1);  // the stream is of device 0
  EXPECT_NE(refused({1, 1}, 256, 0, stream).find("(400)"), std::string::npos);
}

TEST_P(StrictDriverTest, HandlesLiveUntilTheyAreDestroyed) {
  const auto driver = find();
  driver->use(0);
  void* data = nullptr;
  ASSERT_EQ(call("cuMemAlloc_v2", "hipMalloc", &data, size_t{100}), 0);
  EXPECT_EQ(call("cuMemFree_v2", "hipFree", static_cast<void*>(static_cast<char*>(data) + 1)), 1);
  EXPECT_EQ(call("cuMemFree_v2", "hipFree", data), 0);
  EXPECT_EQ(call("cuMemFree_v2", "hipFree", data), 1);
  Driver::StreamHandle stream = driver->make_stream(false);
  Driver::EventHandle event = driver->make_event();
  EXPECT_EQ(call("cuMemsetD8Async", "hipMemsetD8Async", data, static_cast<unsigned char>(0), size_t{1}, stream), 1);
  EXPECT_EQ(call("cuStreamSynchronize", "hipStreamSynchronize", event), 400);
  EXPECT_EQ(call("cuEventDestroy_v2", "hipEventDestroy", event), 0);
  EXPECT_EQ(call("cuEventRecord", "hipEventRecord", event, stream), 400);
  EXPECT_EQ(call("cuStreamDestroy_v2", "hipStreamDestroy", stream), 0);
  EXPECT_EQ(call("cuStreamDestroy_v2", "hipStreamDestroy", stream), 400);
  if (!is_cuda()) return;
  int in_thread = 0;
  std::thread([&] { in_thread = call("cuMemAlloc_v2", "", &data, size_t{100}); }).join();
  EXPECT_EQ(in_thread, 201);  // no current context there
}

TEST_P(StrictDriverTest, CaptureHasItsErrors) {
  const auto driver = find();
  driver->use(0);
  Driver::StreamHandle stream = driver->make_stream(false);
  Driver::EventHandle event = driver->make_event();
  driver->record(event, stream);
  driver->wait(event);
  void* graph = nullptr;
  const auto begin = [&] { return call("cuStreamBeginCapture_v2", "hipStreamBeginCapture", stream, 1); };
  const auto end = [&] { return call("cuStreamEndCapture", "hipStreamEndCapture", stream, &graph); };
  EXPECT_EQ(end(), 401);
  EXPECT_EQ(begin(), 0);
  EXPECT_EQ(begin(), 401);
  EXPECT_EQ(call("cuStreamSynchronize", "hipStreamSynchronize", stream), 900);
  EXPECT_EQ(end(), 901);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(begin(), 0);
  void* data = nullptr;
  EXPECT_EQ(call("cuMemAlloc_v2", "hipMalloc", &data, size_t{100}), 900);
  EXPECT_EQ(end(), 901);
  EXPECT_EQ(begin(), 0);
  EXPECT_EQ(call("cuStreamWaitEvent", "hipStreamWaitEvent", stream, event, 0U), 905);
  int in_thread = 0;
  std::thread([&] {
    driver->use(0);
    in_thread = end();
  }).join();
  EXPECT_EQ(in_thread, 908);
  EXPECT_EQ(end(), 901);
  EXPECT_EQ(begin(), 0);
  EXPECT_EQ(end(), 0);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(call("cuGraphDestroy", "hipGraphDestroy", graph), 0);
  EXPECT_EQ(call("cuGraphDestroy", "hipGraphDestroy", graph), 400);
}

// Each fault has a process of its own, since a failed device stays so. The regular expression is of standard error.
class StrictDriverDeathTest : public StrictDriverTest {
 protected:
  StrictDriverDeathTest() { testing::GTEST_FLAG(death_test_style) = "threadsafe"; }

  [[noreturn]] static void leave(const std::string& message) {
    std::fprintf(stderr, "%s\n", message.c_str());
    std::_Exit(message.empty() ? 1 : 0);
  }
};

TEST_P(StrictDriverDeathTest, TheHostHasNoAccessToDeviceMemory) {
  const auto read_it = [&] {
    const auto gpu = device();
    std::_Exit(*static_cast<volatile char*>(gpu->allocate(64)));
  };
  EXPECT_DEATH(read_it(), "");
}

TEST_P(StrictDriverDeathTest, KernelsOutsideOfAllocationsFail) {
  const auto overrun = [&] {
    const auto gpu = device();
    auto* data = static_cast<float*>(gpu->allocate(64 * sizeof(float)));
    const ScaleArgs args{data, data, 0, 2.0F, 65};  // one element too many; 64 end where the page does
    float value = 0;
    leave(message_of([&] {  // from either call: the kernel may fail before the first returns
      gpu->launch(kernel("scale_f32"), &args, {1, 1}, 0);
      gpu->copy_to_host(&value, data, sizeof value);
    }));
  };
  EXPECT_EXIT(overrun(), testing::ExitedWithCode(0),
              "scale_f32 accessed 0x.*kernel scale_f32.*700|scale_f32 accessed 0x.*700.*kernel scale_f32");
}

TEST_P(StrictDriverDeathTest, KernelsThatUseFreedMemoryFail) {
  const auto use_freed = [&] {
    const auto gpu = device();
    auto* data = static_cast<float*>(gpu->allocate(64 * sizeof(float)));
    gpu->release(data, 64 * sizeof(float));
    const ScaleArgs args{data, data, 0, 2.0F, 64};
    leave(message_of([&] {
      gpu->launch(kernel("scale_f32"), &args, {1, 1}, 0);
      gpu->copy_to_host_async(Stream::compute, nullptr, data, sizeof(float));
    }));
  };
  EXPECT_EXIT(use_freed(), testing::ExitedWithCode(0), "not within one allocation|accessed 0x");
}

TEST_P(StrictDriverDeathTest, AMissingWaitShows) {
  const auto forget = [&] {
    const ScopedVariable slow("STRICT_DRIVER", "delay_us=50000");
    const auto gpu = device();
    const Buffer memory(*gpu, sizeof(int));
    auto* pinned = static_cast<int*>(gpu->allocate_pinned(sizeof(int)));
    *pinned = 5;
    gpu->copy_from_host_async(Stream::copy, memory.data(), pinned, sizeof(int));
    *pinned = 6;  // before the copy has run
    gpu->copy_to_host_async(Stream::copy, pinned, memory.data(), sizeof(int));
    const int early = *static_cast<volatile int*>(pinned);
    const auto event = gpu->make_event();
    event->record(Stream::copy);
    event->wait();
    leave(fmt::format("early {} late {}", early, *pinned));
  };
  EXPECT_EXIT(forget(), testing::ExitedWithCode(0), "early -1 late -1");
}

TEST_P(StrictDriverDeathTest, WithItsWaitsACopyIsRight) {
  const auto remember = [&] {
    const ScopedVariable slow("STRICT_DRIVER", "delay_us=20000");
    const auto gpu = device();
    const Buffer memory(*gpu, sizeof(int));
    auto* pinned = static_cast<int*>(gpu->allocate_pinned(2 * sizeof(int)));
    pinned[0] = 5;
    const auto event = gpu->make_event();
    gpu->copy_from_host_async(Stream::copy, memory.data(), pinned, sizeof(int));
    event->record(Stream::copy);
    event->wait_on(Stream::compute);
    gpu->copy_to_host_async(Stream::compute, pinned + 1, memory.data(), sizeof(int));
    event->record(Stream::compute);
    event->wait();
    leave(fmt::format("copied {}", pinned[1]));
  };
  EXPECT_EXIT(remember(), testing::ExitedWithCode(0), "copied 5");
}

INSTANTIATE_TEST_SUITE_P(Vendors, StrictDriverTest, testing::ValuesIn(vendors),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Vendors, StrictDriverDeathTest, testing::ValuesIn(vendors),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ingot::gpu
