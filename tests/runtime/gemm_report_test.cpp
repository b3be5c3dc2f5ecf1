// How a GPU runs the gemms of training and serving: on a fake cuBLASLt, whose algorithms are known.
#include "runtime/gemm_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/backend/gpu/fake_device.h"
#include "tests/locations.h"

namespace ingot::runtime {
namespace {

class GemmReports : public testing::Test {
 protected:
  static std::unique_ptr<gpu::MatmulLibrary> open(const char* library) {
    const gpu::ScopedVariable variable("INGOT_CUBLASLT_LIBRARY", library);
    return gpu::open_cublaslt();
  }
  explicit GemmReports(const char* library = fake_cublaslt) : device_(DeviceKind::cuda, open(library), nullptr) {
    gpu::register_ops(registry_, DeviceKind::cuda);
  }

  gpu::FakeDevice device_;
  ops::Registry registry_;
};

TEST_F(GemmReports, NameTheAlgorithmAndMeasure) {
  const GemmJob job{"small", 64, 32, 16, {.transpose_b = true, .invariance = ops::Invariance::none}};
  const GemmReport report = report_gemm(device_, registry_, job, 1e12);
  EXPECT_EQ(report.plan.reason, "");
  EXPECT_EQ(report.plan.algorithm, "id 6, stages 35");
  EXPECT_EQ(report.plan.split_k, 4);
  EXPECT_GT(report.plan.workspace_bytes, 0U);
  EXPECT_GT(report.flops_per_s, 0);
  EXPECT_EQ(report.not_measured, "");
}

TEST_F(GemmReports, DoNotMeasureWhatTakesTooLong) {
  const GemmJob job{"small", 64, 32, 16, {.transpose_b = true, .invariance = ops::Invariance::rows}};
  const GemmReport report = report_gemm(device_, registry_, job, job.flops() / 2);
  EXPECT_EQ(report.plan.algorithm, "id 4, stages 35");
  EXPECT_EQ(report.flops_per_s, 0);
  EXPECT_EQ(report.not_measured, "a call would take about 2.0 s");
}

TEST_F(GemmReports, SayWhyOurKernelsRunAGemm) {
  const GemmJob job{"unaligned", 16, 31, 16, {.transpose_b = true}, DType::f32};
  const GemmReport report = report_gemm(device_, registry_, job, 1e12);
  EXPECT_EQ(report.plan.reason, "row strides are not multiples of 16 bytes");
  EXPECT_GT(report.flops_per_s, 0);
}

class GemmReportsWithoutALibrary : public GemmReports {
 protected:
  GemmReportsWithoutALibrary() : GemmReports("/nowhere/library.so") {}
};

TEST_F(GemmReportsWithoutALibrary, SayWhereItWasSearched) {
  const GemmReport report = report_gemm(device_, registry_, gemm_jobs().front(), 1);
  EXPECT_NE(report.plan.reason.find("/nowhere/library.so"), std::string::npos) << report.plan.reason;
  EXPECT_EQ(report.flops_per_s, 0);
}

TEST_F(GemmReports, AreOfJobsWithNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const GemmJob& job : gemm_jobs()) {
    EXPECT_TRUE(names.insert(job.name).second) << job.name;
    const GemmReport report = report_gemm(device_, registry_, job, 1);
    const bool unaligned = job.n % 4 != 0;
    EXPECT_EQ(report.plan.reason.empty(), !unaligned) << job.name << ": " << report.plan.reason;
  }
}

}  // namespace
}  // namespace ingot::runtime
