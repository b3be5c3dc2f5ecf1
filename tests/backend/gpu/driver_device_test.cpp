// A device over a driver that only keeps books: what is loaded, launched and said when something fails.
#include "backend/gpu/runtime/driver_device.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/gpu/runtime/code_objects.h"
#include "base/error.h"

namespace ingot::gpu {
namespace {

struct Books {
  std::vector<std::string> calls;
  std::string runs = "cuda";  // the architecture whose code it takes
  std::string fails;          // the call that fails
};

class FakeDriver : public Driver {
 public:
  FakeDriver(Books& books, DeviceKind kind) : books_(books), kind_(kind) {}
  DeviceKind kind() const override { return kind_; }
  const std::string& library() const override { return library_; }
  std::string version() const override { return "1"; }
  int num_devices() override { return 2; }
  std::string device_name(int) override { return "Pretender"; }
  size_t memory_bytes(int) override { return 1000; }
  std::string architecture(int) override { return kind_ == DeviceKind::cuda ? "sm_90" : ""; }
  void use(int device) override { used_ = device; }
  size_t free_bytes() override { return 500; }
  void* allocate(size_t bytes) override {
    if (bytes > 500) throw_error(ErrorKind::resource, "no memory");
    return std::calloc(1, bytes);
  }
  void release(void* data) noexcept override { std::free(data); }
  void copy_to_device(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void copy_to_host(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  Module load(const void* image) override {
    for (const CodeObject& code : code_objects()) {
      if (code.begin != image || code.architecture != books_.runs) continue;
      books_.calls.push_back("load " + std::string(code.file));
      return const_cast<unsigned char*>(code.begin);
    }
    return nullptr;
  }
  Function function(Module, const char* name) override {
    books_.calls.push_back(std::string("function ") + name);
    return const_cast<char*>(name);
  }
  void allow_shared(Function, size_t bytes) override { books_.calls.push_back("shared " + std::to_string(bytes)); }
  void launch(Function function, Grid grid, int threads, size_t, const void* args) override {
    if (books_.fails == "launch") throw_error(ErrorKind::unavailable, "too many resources");
    books_.calls.push_back("launch " + std::string(static_cast<const char*>(function)) + " " + std::to_string(grid.x) +
                           " " + std::to_string(threads) + " " + std::to_string(*static_cast<const int*>(args)) +
                           " on " + std::to_string(used_));
  }
  void synchronize() override {}

 private:
  void copy(void* to, const void* from, size_t bytes) {
    if (books_.fails == "copy") throw_error(ErrorKind::unavailable, "illegal address");
    std::memcpy(to, from, bytes);
  }
  Books& books_;
  DeviceKind kind_;
  std::string library_ = "libfake.so";
  int used_ = -1;
};

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

class DriverDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!code_objects().empty()) file_ = std::string(code_objects().front().file);
  }
  // A build without device code says so, and there is nothing more to test.
  bool without_code() {
    if (!code_objects().empty()) return false;
    EXPECT_NE(message_of([&] { device(); }).find("this build has no code for GPUs"), std::string::npos);
    return true;
  }
  std::unique_ptr<GpuDevice> device(DeviceKind kind = DeviceKind::cuda, int index = 1) {
    return make_device(std::make_shared<FakeDriver>(books_, kind), index);
  }
  KernelInfo kernel() const { return {file_.c_str(), "some_kernel", 64, sizeof(int), nullptr, nullptr}; }

  Books books_;
  std::string file_;
};

TEST_F(DriverDeviceTest, LoadsCodeOnceAndLaunchesWithTheArguments) {
  if (without_code()) return;
  books_.runs = code_objects().front().architecture;
  const bool cuda = books_.runs == "cuda";
  const auto gpu = device(cuda ? DeviceKind::cuda : DeviceKind::hip);
  EXPECT_EQ(gpu->name(), cuda ? "cuda:1" : "hip:1");
  EXPECT_EQ(gpu->arch(), cuda ? "sm_90" : books_.runs);
  const int args = 7;
  gpu->launch(kernel(), &args, {5, 1}, 0);
  gpu->launch(kernel(), &args, {6, 1}, 60000);
  gpu->launch(kernel(), &args, {7, 1}, 60000);
  const std::vector<std::string> wanted{
      "load " + file_, "function some_kernel",           "launch some_kernel 5 64 7 on 1",
      "shared 60000",  "launch some_kernel 6 64 7 on 1", "launch some_kernel 7 64 7 on 1"};
  EXPECT_EQ(books_.calls, wanted);
}

TEST_F(DriverDeviceTest, NamesWhatFailed) {
  if (without_code()) return;
  books_.runs = code_objects().front().architecture;
  const auto gpu = device(books_.runs == "cuda" ? DeviceKind::cuda : DeviceKind::hip);
  const int args = 7;
  int host = 0;
  void* data = gpu->allocate(sizeof host);
  gpu->launch(kernel(), &args, {5, 1}, 0);
  books_.fails = "copy";
  const std::string copy = message_of([&] { gpu->copy_to_host(&host, data, sizeof host); });
  EXPECT_NE(copy.find("illegal address; the last kernel started before was some_kernel"), std::string::npos) << copy;
  books_.fails = "launch";
  const std::string launch = message_of([&] { gpu->launch(kernel(), &args, {5, 2}, 0); });
  EXPECT_NE(launch.find("kernel some_kernel on"), std::string::npos) << launch;
  EXPECT_NE(launch.find("grid 5 x 2: too many resources"), std::string::npos) << launch;
  gpu->release(data, sizeof host);
}

TEST_F(DriverDeviceTest, RefusesDevicesThatAreNotThereOrHaveNoCode) {
  if (without_code()) return;
  EXPECT_NE(message_of([&] { device(DeviceKind::cuda, 2); }).find("'cuda:2': there are 2"), std::string::npos);
  books_.runs = "gfx000";
  const std::string none = message_of([&] { device(DeviceKind::hip, 0); });
  EXPECT_NE(none.find("hip:0 (Pretender): this build has no code"), std::string::npos) << none;
}

TEST(FindDriver, SaysWhyThereIsNone) {
  setenv("INGOT_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
  const FoundDriver found = find_cuda_driver();
  unsetenv("INGOT_CUDA_LIBRARY");
  EXPECT_EQ(found.driver, nullptr);
  EXPECT_NE(found.reason.find("/nowhere/libcuda.so.1"), std::string::npos) << found.reason;
}

TEST(FindDriver, NamesTheFunctionThatALibraryLacks) {
  setenv("INGOT_HIP_LIBRARY", "libm.so.6", 1);
  const FoundDriver found = find_hip_driver();
  unsetenv("INGOT_HIP_LIBRARY");
  EXPECT_EQ(found.driver, nullptr);
  EXPECT_NE(found.reason.find("libm.so.6 has no function hipInit"), std::string::npos) << found.reason;
}

}  // namespace
}  // namespace ingot::gpu
