// Attention by cuDNN: our binding on a fake library that computes on the host what its descriptors say. Where the real
// library is found, also whether it accepts our graphs for a device that is not present.
#include <gtest/gtest.h>

#include <array>

#include "backend/gpu/ops.h"
#include "base/error.h"
#include "ops/attention.h"
#include "ops/attention_bytes.h"
#include "tests/backend/gpu/fake_device.h"

namespace ingot::gpu {
namespace {

class VendorAttention : public testing::Test {
 protected:
  static std::unique_ptr<AttentionLibrary> open() {
    const ScopedVariable variable("INGOT_CUDNN_LIBRARY", INGOT_FAKE_CUDNN);
    return open_cudnn();
  }
  const ScopedVariable cublaslt_{"INGOT_CUBLASLT_LIBRARY", INGOT_FAKE_CUBLASLT};  // before 9.24 it must be there
};

// Before 9.24 attention is several operations.
TEST_F(VendorAttention, AgreesWithTheDoubleReferenceInEveryVersion) {
  for (const char* version : {"92400", "91900"}) {
    const ScopedVariable variable("INGOT_FAKE_CUDNN_VERSION", version);
    FakeDevice device(DeviceKind::cuda, nullptr, open());
    EXPECT_GE(agreeing_cases(device, "attention", "cudnn"), 6) << version;
  }
}

// The library writes to all of its workspace; the device gets no allocation outside the planned scratch.
TEST_F(VendorAttention, UsesPlannedScratchAsWorkspace) {
  FakeDevice device(DeviceKind::cuda, nullptr, open());
  ops::Registry registry;
  register_ops(registry, DeviceKind::cuda);
  registry.select_implementation("attention", "cudnn");
  const Shape shape{8, 64};
  Arena memory(device, 4 * Arena::footprint(DType::bf16, shape) + Arena::footprint(DType::i32, {2}), "test");
  std::array<Tensor, 4> rows;
  for (Tensor& tensor : rows) {
    tensor = memory.allocate(DType::bf16, shape);
    device.copy_from_host(tensor.data, std::array<uint16_t, 512>{}.data(), 1024);
  }
  const auto& [out, q, k, v] = rows;
  const Tensor offsets = memory.allocate(DType::i32, {2});
  device.copy_from_host(offsets.data, std::array<int32_t, 2>{0, 8}.data(), 8);
  ops::AttentionAttributes attributes{};
  attributes.heads = 1;
  attributes.kv_heads = 1;
  attributes.head_dim = 64;
  attributes.scale = 1;
  const auto attend = [&](Arena& scratch) {
    ops::Context context{device, registry, scratch, nullptr};
    ops::attention(context, out, {}, q, k, v, offsets, attributes);
  };
  Arena planned(device, ops::attention_bytes(8, 8, 1, 64, 0), "scratch");
  attend(planned);
  EXPECT_LE(planned.peak(), ops::attention_library_bytes);
  EXPECT_GE(planned.peak(), attention_workspace_bytes);
  EXPECT_EQ(planned.used(), 0U);
  Arena none;
  EXPECT_THROW(attend(none), Error);
}

PackedAttention call_of(int64_t d) {
  return {.out = nullptr,
          .lse = nullptr,
          .q = nullptr,
          .k = nullptr,
          .v = nullptr,
          .offsets = nullptr,
          .tokens = 100,
          .sequences = 3,
          .heads = 8,
          .kv_heads = 2,
          .d = d,
          .window = 0,
          .scale = 1.0F};
}

TEST_F(VendorAttention, ReportsWhyItDeclines) {
  const auto library = open();
  EXPECT_EQ(library->decline(call_of(128)), "");
  EXPECT_NE(library->decline(call_of(256)).find("no engine for head size 256"), std::string::npos);
  {
    const ScopedVariable old("INGOT_FAKE_CUDNN_VERSION", "90999");
    EXPECT_NE(open()->decline(call_of(128)).find("is version 9.9.99; fused attention needs 9.10.0 or later"),
              std::string::npos)
        << open()->decline(call_of(128));
    const ScopedVariable with_sdpa("INGOT_FAKE_CUDNN_VERSION", "92400");
    EXPECT_FALSE(open()->needs_tables());
    const ScopedVariable before_sdpa("INGOT_FAKE_CUDNN_VERSION", "92300");
    EXPECT_TRUE(open()->needs_tables());
    PackedAttention many = call_of(128);
    many.tokens = int64_t{1} << 21;
    EXPECT_NE(open()->decline(many).find("numbers elements in 32 bits"), std::string::npos);
    --many.tokens;
    EXPECT_EQ(open()->decline(many), "");
    const ScopedVariable no_cublaslt("INGOT_CUBLASLT_LIBRARY", "/nowhere/libcublasLt.so");
    EXPECT_NE(open()->decline(call_of(128)).find("which needs cuBLASLt: /nowhere/libcublasLt.so"), std::string::npos)
        << open()->decline(call_of(128));
    const ScopedVariable cudnn("INGOT_CUDNN_LIBRARY", INGOT_FAKE_CUDNN);
    const LibraryInfo facts = info_of_cudnn();
    EXPECT_NE(facts.reason.find("which needs cuBLASLt: /nowhere/libcublasLt.so"), std::string::npos) << facts.reason;
    EXPECT_EQ(facts.path, "");
    EXPECT_EQ(facts.version, "9.23.0");
  }
  const ScopedVariable variable("INGOT_CUDNN_LIBRARY", "/nowhere/libcudnn.so.9");
  EXPECT_NE(open_cudnn()->decline(call_of(128)).find("/nowhere/libcudnn.so.9"), std::string::npos);
  EXPECT_NE(info_of_cudnn().reason.find("/nowhere/libcudnn.so.9"), std::string::npos);
}

TEST_F(VendorAttention, FactsNameTheLibraryFileAndVersion) {
  const ScopedVariable variable("INGOT_CUDNN_LIBRARY", INGOT_FAKE_CUDNN);
  const LibraryInfo facts = info_of_cudnn();
  EXPECT_EQ(facts.path, INGOT_FAKE_CUDNN);
  EXPECT_EQ(facts.version, "9.28.3");
  EXPECT_EQ(facts.reason, "");
}

// An H200 as cuDNN's JSON describes devices.
constexpr const char* h200 = R"({"deviceName": "NVIDIA H200", "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000,
  "totalGlobalMem": 150754820096, "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "regsPerBlock": 65536, "multiProcessorCount": 132, "smCountOrigin": 0, "warpSize": 32,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "oversizedSharedMemoryPerBlock": 0,
  "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
  "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000,
  "memClockRateKHz": 3201000, "memoryBusWidth": 6144, "l2CacheSize": 62914560})";

// tools/cudnn_graphs.sh runs this with the real library and without a driver.
TEST(CudnnGraphs, AreAcceptedForHopperByTheInstalledLibrary) {
  const LibraryInfo facts = info_of_cudnn();
  const SharedLibrary driver({"libcuda.so.1"}, {});  // the library's engines link to it
  const auto library = open_cudnn_for(h200);
  for (const int64_t d : {64, 80, 128, 256}) {
    for (const int64_t window : {0, 4096}) {
      for (const int64_t sequences : {1, 2, 16}) {
        PackedAttention call = call_of(d);
        call.tokens = 8192;
        call.heads = 32;
        call.kv_heads = 8;
        call.window = window;
        call.sequences = sequences;
        float lse = 0;
        for (float* const saved : {static_cast<float*>(nullptr), &lse}) {
          call.lse = saved;
          EXPECT_EQ(library->decline(call).empty(), !facts.path.empty() && driver)
              << facts.reason << library->decline(call) << " d " << d << " window " << window;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ingot::gpu
