// The stand-ins for vendors' libraries on the strict driver: their work runs on the device, in the order of streams,
// and what the vendors' documentation forbids is found.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "backend/gpu/runtime/blas_lt_functions.h"
#include "backend/gpu/runtime/driver_device.h"
#include "backend/gpu/runtime/first_gpu.h"
#include "base/shared_library.h"
#include "tests/backend/gpu/fake_device.h"
#include "tests/backend/gpu/strict/test_code.h"
#include "tests/base/error_of.h"
#include "tests/locations.h"

namespace ingot::gpu {
namespace {

std::string library_file(const char* name) { return std::string(test_libraries) + "/libstrict_" + name + ".so"; }

struct Vendor {
  const char* name;
  const char* driver_variable;
  const char* const* driver;
  FoundDriver (*find)();
  const char* gemms;  // the library and the name of its implementation
  const char* gemms_variable;
  const char* prefix;
  int compute_f32;
  int not_initialized, invalid_value, execution_failed;
  uint8_t whole, split;  // algorithms that add sums in one piece, and in several with a workspace
};
const Vendor vendors[] = {{"CUDA", "INGOT_CUDA_LIBRARY", &strict_cuda, find_cuda_driver, "cublaslt",
                           "INGOT_CUBLASLT_LIBRARY", "cublasLt", 68, 1, 7, 13, 4, 6},
                          {"HIP", "INGOT_HIP_LIBRARY", &strict_hip, find_hip_driver, "hipblaslt",
                           "INGOT_HIPBLASLT_LIBRARY", "hipblasLt", 2, 1, 3, 5, 3, 1}};

class StrictLibraries : public testing::TestWithParam<Vendor> {
 protected:
  bool is_cuda() const { return std::string(GetParam().name) == "CUDA"; }
  std::shared_ptr<Driver> find() const {
    const ScopedVariable variable(GetParam().driver_variable, *GetParam().driver);
    return GetParam().find().driver;
  }
};

TEST_P(StrictLibraries, AgreeWithTheDoubleReference) {
  const ScopedVariable gemms(GetParam().gemms_variable, library_file(GetParam().gemms).c_str());
  const ScopedVariable cudnn("INGOT_CUDNN_LIBRARY", library_file("cudnn").c_str());
  const std::unique_ptr<GpuDevice> device = make_device(find(), 0, {.code = test_code()});
  EXPECT_GE(agreeing_cases(*device, "matmul", GetParam().gemms), 12);
  EXPECT_GE(agreeing_cases(*device, "linear_fp8", GetParam().gemms), 4);
  EXPECT_GE(agreeing_cases(*device, "linear_bias", GetParam().gemms), 6);
  if (is_cuda()) EXPECT_EQ(agreeing_cases(*device, "attention", "cudnn", 6), 6);
}

// c = a b of side 64 in fp32, on device 0, by the library's own functions. An algorithm of cuBLASLt is 64 bytes, and
// one of hipBLASLt 24; both begin with the algorithm's number here.
class Call {
 public:
  static constexpr int side = 64;
  static constexpr size_t bytes = sizeof(float) * side * side;
  using Algorithm = LtAlgorithm<64>;

  Call(const Vendor& vendor, std::shared_ptr<Driver> driver)
      : vendor_(&vendor),
        driver_(std::move(driver)),
        library_(std::make_shared<SharedLibrary>(std::vector{library_file(vendor.gemms)}, std::vector<std::string>{})),
        lt_(*library_, vendor.prefix) {
    driver_->use(0);
    EXPECT_EQ(lt_.Create(&handle), 0);
    EXPECT_EQ(lt_.MatmulDescCreate(&product, vendor.compute_f32, 0), 0);
    matrix = layout(side);
    for (void*& each : data) each = driver_->allocate(bytes);
    workspace = driver_->allocate(4 * bytes);
    workspace_bytes = 4 * bytes;
    stream = driver_->make_stream(false);
    std::array<float, side * side> ones{};
    ones.fill(1.0F);
    for (void* each : data) driver_->copy_to_device(each, ones.data(), bytes, stream);
  }

  LtDescriptor layout(int64_t ld) const {
    LtDescriptor made = nullptr;
    EXPECT_EQ(lt_.MatrixLayoutCreate(&made, 0, side, side, ld), 0);
    return made;
  }
  int run(bool split = false) const {
    Algorithm algorithm{};
    algorithm.data[0] = static_cast<std::byte>(split ? vendor_->split : vendor_->whole);
    const float one = 1, zero = 0;
    return lt_.Matmul(handle, product, &one, data[1], matrix, data[2], matrix, &zero, data[0], matrix, data[0], matrix,
                      &algorithm, split ? workspace : nullptr, split ? workspace_bytes : 0, stream);
  }
  // The first element of c.
  float result() const {
    float value = 0;
    driver_->copy_to_host(&value, data[0], sizeof value, stream);
    return value;
  }
  int destroy_handle() const { return lt_.Destroy(handle); }
  int destroy_product() const { return lt_.MatmulDescDestroy(product); }
  int make_handle() const {
    LtHandle made = nullptr;
    return lt_.Create(&made);
  }

  LtHandle handle = nullptr;
  LtDescriptor product = nullptr, matrix = nullptr;
  std::array<void*, 3> data{};  // c, a, b
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  Driver::StreamHandle stream = nullptr;

 private:
  const Vendor* vendor_;
  std::shared_ptr<Driver> driver_;
  std::shared_ptr<const SharedLibrary> library_;
  LtFunctions<Algorithm> lt_;
};

TEST_P(StrictLibraries, RefuseOperandsThatAreNotAsDocumented) {
  const Vendor& vendor = GetParam();
  const std::shared_ptr<Driver> driver = find();
  const Call fine(vendor, driver);
  EXPECT_EQ(fine.run(), 0);
  EXPECT_EQ(fine.result(), 64.0F);
  EXPECT_EQ(fine.run(true), 0);
  EXPECT_EQ(fine.result(), 64.0F);
  std::vector<float> host(Call::side * Call::side);
  for (const size_t operand : {size_t{0}, size_t{1}, size_t{2}}) {
    Call call = fine;
    call.data.at(operand) = host.data();
    EXPECT_EQ(call.run(), vendor.execution_failed) << operand << ": host memory";
    call = fine;
    call.data.at(operand) = static_cast<std::byte*>(fine.data.at(operand)) + 16;
    EXPECT_EQ(call.run(), vendor.execution_failed) << operand << ": beyond the end";
    call.data.at(operand) = static_cast<std::byte*>(fine.data.at(operand)) + 4;
    EXPECT_EQ(call.run(), vendor.invalid_value) << operand << ": alignment";
  }
  for (const int64_t ld : {Call::side - 4, Call::side + 1}) {
    Call call = fine;
    call.matrix = fine.layout(ld);
    EXPECT_EQ(call.run(), vendor.invalid_value) << ld;
  }
  Call call = fine;
  call.workspace_bytes = 4 * Call::bytes - 1;
  EXPECT_EQ(call.run(true), vendor.invalid_value) << "a workspace that is too small";
  call = fine;
  call.workspace_bytes = 4 * Call::bytes + 1;
  EXPECT_EQ(call.run(true), vendor.execution_failed) << "a workspace that is smaller than said";
  call = fine;
  call.workspace = static_cast<std::byte*>(fine.workspace) + 16;
  EXPECT_EQ(call.run(true), vendor.invalid_value) << "a workspace that is not aligned";
  EXPECT_EQ(fine.run(), 0);
}

TEST_P(StrictLibraries, RefuseHandlesAndStreamsOfOthers) {
  const Vendor& vendor = GetParam();
  const std::shared_ptr<Driver> driver = find();
  const Call fine(vendor, driver);
  driver->use(1);
  EXPECT_EQ(fine.run(), vendor.execution_failed) << "the handle and the stream are of device 0";
  Call call = fine;
  call.stream = driver->make_stream(false);
  EXPECT_EQ(call.run(), vendor.execution_failed) << "the handle is of device 0";
  driver->use(0);
  EXPECT_EQ(call.run(), vendor.execution_failed) << "the stream is of device 1";
  call = fine;
  call.stream = driver->make_stream(false);
  driver->release_stream(call.stream);
  EXPECT_EQ(call.run(), vendor.execution_failed) << "the stream was destroyed";
  call = fine;
  call.matrix = fine.product;
  EXPECT_EQ(call.run(), vendor.invalid_value) << "a handle of another kind";
  EXPECT_EQ(fine.run(), 0);
  EXPECT_EQ(fine.destroy_product(), 0);
  EXPECT_EQ(fine.run(), vendor.invalid_value) << "the gemm's description was destroyed";
  EXPECT_EQ(fine.destroy_product(), vendor.invalid_value);
  EXPECT_EQ(fine.destroy_handle(), 0);
  EXPECT_EQ(fine.destroy_handle(), vendor.not_initialized);
}

TEST_P(StrictLibraries, CallsAreCapturedAndHandlesCannotBeMadeMeanwhile) {
  const Vendor& vendor = GetParam();
  const std::shared_ptr<Driver> driver = find();
  const Call call(vendor, driver);
  driver->begin_capture(call.stream);
  EXPECT_EQ(call.run(true), 0);
  EXPECT_EQ(call.run(), 0);
  const Driver::CapturedGraph graph = driver->end_capture(call.stream);
  EXPECT_EQ(graph.nodes, 2U);
  EXPECT_EQ(call.result(), 1.0F);  // nothing has run
  driver->run(graph.graph, call.stream);
  EXPECT_EQ(call.result(), 64.0F);
  driver->begin_capture(call.stream);
  EXPECT_EQ(call.make_handle(), vendor.not_initialized);
  EXPECT_EQ(call.run(), vendor.execution_failed) << "the capture is invalid";
  EXPECT_NE(message_of([&] { driver->end_capture(call.stream); }).find("(901)"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Vendors, StrictLibraries, testing::ValuesIn(vendors),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ingot::gpu
