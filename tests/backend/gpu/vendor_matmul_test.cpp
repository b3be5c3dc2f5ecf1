// Matmul ops by cuBLASLt and hipBLASLt: our binding on fake libraries that multiply column-major matrices on the host,
// as the vendors document it. Also the folders that are searched for libraries.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backend/gpu/ops.h"
#include "backend/gpu/runtime/library_folders.h"
#include "backend/gpu/runtime/matmul_library.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/matmul.h"
#include "ops/testing/op_table.h"
#include "tensor/tolerance.h"
#include "tests/backend/gpu/fake_device.h"

namespace ingot::gpu {
namespace {

struct Vendor {
  DeviceKind kind;
  const char* name;
  const char* variable;
  const char* fake;
  const char* version;
  std::unique_ptr<MatmulLibrary> (*open)();
  LibraryInfo (*facts)();
  const char* refusal;  // of the first algorithm for k = 20
};

const Vendor vendors[] = {
    {DeviceKind::cuda, "cublaslt", "INGOT_CUBLASLT_LIBRARY", INGOT_FAKE_CUBLASLT, "13.2.3", open_cublaslt,
     info_of_cublaslt, "; its first, id 1, stages 35, adds the pieces of sums in the result"},
    {DeviceKind::hip, "hipblaslt", "INGOT_HIPBLASLT_LIBRARY", INGOT_FAKE_HIPBLASLT, "1.2.3", open_hipblaslt,
     info_of_hipblaslt, "MT32x32x64_MI16x16x1_GSU4_GSUASB_GSUC0_SK0, adds the pieces of sums by atomic operations"}};

class VendorMatmul : public testing::TestWithParam<Vendor> {
 protected:
  std::unique_ptr<MatmulLibrary> open() const {
    const ScopedVariable variable(GetParam().variable, GetParam().fake);
    return GetParam().open();
  }
};

TEST_P(VendorMatmul, AgreesWithTheDoubleReference) {
  FakeDevice device(GetParam().kind, open(), nullptr);
  const std::pair<const char*, int> ops[] = {
      {"matmul", 12}, {"linear", 12}, {"linear_backward_input", 12}, {"linear_fp8", 4}, {"linear_bias", 10}};
  for (const auto& [op, cases] : ops) EXPECT_GE(agreeing_cases(device, op, GetParam().name), cases) << op;
}

// c [8, 16] = a [8, 32] b [32, 16], f32, aligned.
Gemm product(std::vector<float>& memory) {
  memory.assign(4096, 0.0F);
  auto at = reinterpret_cast<uintptr_t>(memory.data());
  at = (at + 63) / 64 * 64;
  auto* data = reinterpret_cast<float*>(at);
  return {.c = data, .a = data + 512, .b = data + 1024, .m = 8, .n = 16, .k = 32, .lda = 32, .ldb = 16, .ldc = 16};
}

TEST_P(VendorMatmul, ReportsWhyItDeclines) {
  const auto library = open();
  std::vector<float> memory;
  const Gemm fine = product(memory);
  EXPECT_EQ(library->decline(fine), "");
  Gemm p = fine;
  p.b = static_cast<const float*>(p.b) + 1;
  EXPECT_NE(library->decline(p).find("not aligned to 16 bytes"), std::string::npos);
  p = fine;
  p.lda = 33;
  EXPECT_NE(library->decline(p).find("row strides are not multiples of 16 bytes"), std::string::npos);
  p = fine;
  p.m = 0;
  EXPECT_EQ(library->decline(p), "m, n or k is 0");
  p = fine;
  p.out = DType::bf16;
  EXPECT_NE(library->decline(p).find("f32 operands need an f32 result"), std::string::npos);
  p = fine;
  p.k = 56;
  EXPECT_NE(library->decline(p).find("no algorithm for k = 56"), std::string::npos) << library->decline(p);
  p.k = 20;  // all algorithms of the fake libraries add by atomic operations, or in the result
  p.lda = 20;
  EXPECT_NE(library->decline(p).find(GetParam().refusal), std::string::npos) << library->decline(p);
}

TEST_P(VendorMatmul, RunsFp8GemmsAndReportsWhichItDeclines) {
  const auto library = open();
  std::vector<float> memory;
  Gemm p = product(memory);
  p.in = DType::u8;
  p.out = DType::bf16;
  p.transpose_b = true;
  p.ldb = 48;
  p.fnuz = GetParam().kind == DeviceKind::hip;
  EXPECT_EQ(library->decline(p), "");
  Gemm other = p;
  other.k = 24;
  EXPECT_NE(library->decline(other).find("k to be a multiple of 16"), std::string::npos);
  other = p;
  other.transpose_b = false;
  EXPECT_NE(library->decline(other).find("no algorithm"), std::string::npos);
  other = p;
  other.out = DType::f32;
  const bool takes_f32 = GetParam().kind == DeviceKind::hip;
  EXPECT_EQ(library->decline(other),
            takes_f32 ? "" : "fp8 accumulation has fewer bits than fp32; supports bf16 results only");
}

// A gemm of bf16, c [m, 48] = a [m, 64] b [64, 48], whose k depends on nothing else.
Gemm of_rows(std::vector<float>& memory, int64_t m, ops::Invariance invariance) {
  Gemm p = product(memory);
  p.m = m;
  p.n = p.ldb = p.ldc = 48;
  p.k = p.lda = 64;
  p.in = p.out = DType::bf16;
  p.invariance = invariance;
  return p;
}

TEST_P(VendorMatmul, SplitsNoSumWhoseOrderMayDependOnKOrOnKAndNAlone) {
  const auto library = open();
  std::vector<float> memory;
  for (const ops::Invariance invariance : {ops::Invariance::slices, ops::Invariance::rows}) {
    const std::string algorithm = library->describe(of_rows(memory, 1, invariance)).algorithm;
    for (const int64_t m : {1, 8, 40, 500}) {
      const Gemm p = of_rows(memory, m, invariance);
      EXPECT_EQ(library->decline(p), "");
      const MatmulPlan plan = library->describe(p);
      EXPECT_EQ(plan.workspace_bytes, 0U);
      EXPECT_EQ(plan.split_k, 1) << plan.algorithm;
      EXPECT_EQ(plan.algorithm, algorithm);
    }
  }
}

TEST_P(VendorMatmul, SplitsSumsWhereTheirOrderMayDependOnTheShape) {
  const auto library = open();
  std::vector<float> memory;
  const Gemm p = of_rows(memory, 40, ops::Invariance::none);
  EXPECT_EQ(library->decline(p), "");
  const MatmulPlan plan = library->describe(p);
  EXPECT_EQ(plan.reason, "");
  EXPECT_GT(plan.workspace_bytes, 0U);
  EXPECT_LE(plan.workspace_bytes, matmul_workspace_bytes);
  if (GetParam().kind == DeviceKind::cuda) {
    EXPECT_EQ(plan.algorithm, "id 6, stages 35");
    EXPECT_EQ(plan.tile, "128x256");
    EXPECT_EQ(plan.split_k, 4);
    EXPECT_EQ(plan.waves, 1.5F);
  } else {
    EXPECT_EQ(plan.algorithm.find("Cijk_"), 0U) << plan.algorithm;
    EXPECT_EQ(plan.tile, "256x128x64");
    EXPECT_EQ(plan.split_k, 0);  // the kernel's argument
  }
}

// Up to 16 rows have the same algorithm, so that a row's bits do not depend on their number.
TEST_P(VendorMatmul, HasOneAlgorithmForUpToSixteenRows) {
  const auto library = open();
  std::vector<float> memory;
  const std::string algorithm = library->describe(of_rows(memory, 16, ops::Invariance::none)).algorithm;
  for (int64_t m = 1; m < 16; ++m)
    EXPECT_EQ(library->describe(of_rows(memory, m, ops::Invariance::none)).algorithm, algorithm) << m;
}

// Sums in four pieces and in one differ in the last bits. Which it is depends on what is asked for, never on scratch
// memory.
TEST_P(VendorMatmul, TakesTheWorkspaceOfTheDevice) {
  FakeDevice device(GetParam().kind, open(), nullptr);
  ops::Registry registry;
  register_ops(registry, GetParam().kind);
  registry.select_implementation("matmul", GetParam().name);
  constexpr int64_t side = 64;
  Arena memory(device, 3 * Arena::footprint(DType::f32, {side, side}), "test");
  const Tensor c = memory.allocate(DType::f32, {side, side});
  const Tensor a = memory.allocate(DType::f32, {side, side});
  const Tensor b = memory.allocate(DType::f32, {side, side});
  std::vector<float> values(side * side);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  for (const Tensor& given : {a, b}) device.copy_from_host(given.data, values.data(), given.bytes());
  const auto multiply = [&](size_t scratch_bytes, ops::Invariance invariance) {
    Arena scratch(device, scratch_bytes, "scratch");
    ops::Context context{device, registry, scratch, nullptr};
    ops::matmul(context, c, a, b, {.invariance = invariance});
    std::vector<float> result(values.size());
    device.copy_to_host(result.data(), c.data, c.bytes());
    EXPECT_EQ(scratch.peak(), 0U);
    return result;
  };
  const std::vector<float> whole = multiply(0, ops::Invariance::slices);
  EXPECT_EQ(multiply(0, ops::Invariance::rows), whole);
  const std::vector<float> split = multiply(0, ops::Invariance::none);
  EXPECT_EQ(multiply(matmul_workspace_bytes, ops::Invariance::none), split);
  EXPECT_NE(split, whole);
  for (size_t i = 0; i < split.size(); ++i) {
    ElementTerms terms;
    for (size_t k = 0; k < side; ++k) {
      const double term =
          static_cast<double>(values[i / side * side + k]) * static_cast<double>(values[k * side + i % side]);
      terms.wanted += term;
      terms.condition += std::abs(term);
    }
    EXPECT_NEAR(split[i], terms.wanted, element_tolerance(DType::f32, side, terms, Rounding::relative));
  }
}

// More shapes than the library's algorithms and descriptors are cached for.
TEST_P(VendorMatmul, AsksAgainForShapesThatAreNoLongerCached) {
  const auto library = open();
  std::vector<float> memory;
  Gemm p = of_rows(memory, 40, ops::Invariance::none);
  const std::string algorithm = library->describe(p).algorithm;
  Gemm other = p;
  for (int64_t k = 0; k < 4200; ++k) {
    other.k = other.lda = 64 + 8 * k;
    ASSERT_EQ(library->decline(other), "") << other.k;
  }
  EXPECT_EQ(library->decline(p), "");
  EXPECT_EQ(library->describe(p).algorithm, algorithm);
}

TEST_P(VendorMatmul, LogsOnceWhyOurKernelsRunInItsPlace) {
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / ("refusals" + std::to_string(getpid()) + GetParam().name);
  Log log;
  log.add_file(file);
  {
    FakeDevice device(GetParam().kind, open(), nullptr);
    device.set_log(&log);
    ops::Registry registry;
    register_ops(registry, GetParam().kind);
    Arena scratch;
    ops::Context context{device, registry, scratch, nullptr};
    Arena memory(device, 4 * Arena::footprint(DType::f32, {8, 8}), "test");
    const auto allocate = [&](int64_t columns) { return memory.allocate(DType::f32, {8, columns}); };
    const Tensor a = allocate(8), c = allocate(8), narrow_b = allocate(7), narrow_c = allocate(7);
    for (int i = 0; i < 3; ++i) ops::matmul(context, narrow_c, a, narrow_b, {});
    for (int64_t rows = 1; rows < 8; ++rows)  // of one class of gemms
      ops::matmul(context, narrow_c.slice(0, rows), a.slice(0, rows), narrow_b, {});
    ops::matmul(context, c, a, a, {});
  }
  std::ifstream written(file);
  std::string line, all;
  int lines = 0;
  while (std::getline(written, line)) {
    ++lines;
    all += line;
  }
  EXPECT_EQ(lines, 1) << all;
  EXPECT_NE(all.find("pretend:0: our kernels run gemms of f32 with up to 16 rows, n 7 and k 8, not " +
                     std::string(GetParam().name) + ": row strides are not multiples of 16 bytes"),
            std::string::npos)
      << all;
  std::filesystem::remove(file);
}

TEST_P(VendorMatmul, WithAnOldLibraryFp8GemmsFallBackToTheNextImplementation) {
  const ScopedVariable old("INGOT_FAKE_OLD_BLAS_LT", "1");
  const auto library = open();
  std::vector<float> memory;
  Gemm p = product(memory);
  EXPECT_EQ(library->decline(p), "");
  p.in = DType::u8;
  p.out = DType::bf16;
  p.transpose_b = true;
  p.ldb = 48;
  p.fnuz = GetParam().kind == DeviceKind::hip;
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(library->decline(p).find("does not support row-wise scales"), std::string::npos) << library->decline(p);
  }
  FakeDevice device(GetParam().kind, open(), nullptr);
  ops::Registry registry;
  register_ops(registry, GetParam().kind);
  int passed = 0;
  for (const ops::testing::OpCase& op_case : ops::testing::op_cases()) {
    if (op_case.op != "linear_fp8" || op_case.timing_only) continue;
    Arena scratch;
    ops::Context context{device, registry, scratch, nullptr};
    const ops::testing::Verdict verdict = ops::testing::compare(context, op_case);
    EXPECT_NE(verdict.outcome, ops::testing::Outcome::failed) << verdict.text;
    passed += verdict.outcome == ops::testing::Outcome::passed ? 1 : 0;
  }
  EXPECT_GE(passed, 4);
}

TEST_P(VendorMatmul, WithoutTheLibraryGemmsFallBackToTheNextImplementation) {
  const ScopedVariable variable(GetParam().variable, "/nowhere/library.so");
  FakeDevice device(GetParam().kind, GetParam().open(), nullptr);
  ops::Registry registry;
  register_ops(registry, GetParam().kind);
  Arena scratch;
  ops::Context context{device, registry, scratch, nullptr};
  Arena memory(device, 3 * Arena::footprint(DType::f32, {8, 8}), "test");
  const Tensor c = memory.allocate(DType::f32, {8, 8});
  const Tensor a = memory.allocate(DType::f32, {8, 8});
  const Tensor b = memory.allocate(DType::f32, {8, 8});
  ops::matmul(context, c, a, b, {});
  registry.select_implementation("matmul", GetParam().name);
  try {
    ops::matmul(context, c, a, b, {});
    FAIL() << "the missing library accepted a call";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("/nowhere/library.so"), std::string::npos) << error.message();
  }
  const LibraryInfo facts = GetParam().facts();
  EXPECT_EQ(facts.path, "");
  EXPECT_NE(facts.reason.find("/nowhere/library.so"), std::string::npos) << facts.reason;
}

TEST_P(VendorMatmul, FactsNameTheLibraryFileAndVersion) {
  {
    const ScopedVariable variable(GetParam().variable, GetParam().fake);
    const LibraryInfo facts = GetParam().facts();
    EXPECT_EQ(facts.path, GetParam().fake);
    EXPECT_EQ(facts.version, GetParam().version);
    EXPECT_EQ(facts.reason, "");
  }
  const ScopedVariable other(GetParam().variable, "libm.so.6");
  EXPECT_NE(GetParam().facts().reason.find("libm.so.6 has no function"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Vendors, VendorMatmul, testing::ValuesIn(vendors),
                         [](const auto& vendor) { return std::string(vendor.param.name); });

class Folders : public testing::Test {
 protected:
  Folders() : root_(std::filesystem::path(testing::TempDir()) / ("folders" + std::to_string(getpid()))) {}
  ~Folders() override { std::filesystem::remove_all(root_); }
  std::string make(const std::string& folder) const {
    std::filesystem::create_directories(root_ / folder);
    return (root_ / folder).string();
  }
  static bool has(const std::vector<std::string>& folders, const std::string& folder) {
    return std::find(folders.begin(), folders.end(), folder) != folders.end();
  }
  std::filesystem::path root_;
};

TEST_F(Folders, IncludeToolkitsAndPythonWheels) {
  const std::string cuda = make("cuda/lib64");
  const std::string rocm = make("rocm/lib");
  const std::string wheel = make("env/lib/python3.11/site-packages/nvidia/cu13/lib");
  const std::string conda = make("conda/lib/python3.12/site-packages/nvidia/cudnn/lib");
  const std::string of_path = make("other/lib/python3.10/site-packages/nvidia/cublas/lib");
  const std::string rocm_wheel = make("env/lib/python3.11/site-packages/_rocm_sdk_libraries_gfx94X/lib");
  make("env/lib/python3.11/site-packages/nvidia/empty");
  make("other/bin");
  std::ofstream(root_ / "other/bin/python3").put('\n');
  const ScopedVariable cuda_home("CUDA_HOME", (root_ / "cuda").c_str());
  const ScopedVariable cuda_path("CUDA_PATH", (root_ / "nowhere").c_str());
  const ScopedVariable rocm_path("ROCM_PATH", (root_ / "rocm").c_str());
  const ScopedVariable environment("VIRTUAL_ENV", (root_ / "env").c_str());
  const ScopedVariable conda_prefix("CONDA_PREFIX", (root_ / "conda").c_str());
  const ScopedVariable home("HOME", root_.c_str());
  const ScopedVariable path("PATH", ("/nowhere:" + (root_ / "other/bin").string()).c_str());
  const std::vector<std::string> nvidia = nvidia_folders();
  const std::vector<std::string> amd = amd_folders();
  EXPECT_EQ(nvidia.front(), cuda);
  for (const std::string& folder : {wheel, conda, of_path}) EXPECT_TRUE(has(nvidia, folder)) << folder;
  for (const std::string& folder : {rocm, rocm_wheel}) EXPECT_TRUE(has(amd, folder)) << folder;
  EXPECT_FALSE(has(nvidia, rocm));
  for (const std::string& folder : nvidia) EXPECT_TRUE(std::filesystem::is_directory(folder)) << folder;
}

TEST_F(Folders, AreEmptyWithoutEnvironmentVariables) {
  const ScopedVariable environment("VIRTUAL_ENV", nullptr);
  const ScopedVariable conda("CONDA_PREFIX", nullptr);
  const ScopedVariable home("HOME", nullptr);
  const ScopedVariable path("PATH", nullptr);
  EXPECT_TRUE(site_folders().empty());
}

}  // namespace
}  // namespace ingot::gpu
