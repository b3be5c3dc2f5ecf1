// docs/support-matrix.md states what the backend registries contain and how each kernel was tested.
#include "ops/testing/support_matrix.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "backend/cpu/isa.h"
#include "backend/gpu/ops.h"
#include "base/error.h"
#include "ops/device_runs.h"
#include "tests/locations.h"

namespace ingot {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(test_data) + "/../../" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(SupportMatrix, ReportsHowAnOpsKernelsWereTested) {
  ops::Registry registry;
  gpu::register_ops(registry, DeviceKind::sim);
  const ops::testing::SupportTables tables{
      "# made by\nsource\tkernel\ttarget\tregisters\n"
      "glu.gpu.cpp\tglu_f32\tsm_90\t30\nglu.gpu.cpp\tglu_f32\tgfx942\t30\nglu.gpu.cpp\tglu_bf16\tsm_90\t30\n",
      "source\tkernel\ttarget\tops\tcase\tstate\tdetail\n"
      "glu.gpu.cpp\tglu_f32\tgfx942\tadd,glu\tglu: f32\tagrees\tsame bits\n"
      "glu.gpu.cpp\tglu_bf16\tgfx942\tglu\tglu: bf16\tnot emulated\tno such instruction\n",
      "architecture\top\tdate\tcommit\treport\nsm_90\tglu\t2026-01-02\tabc\tx.md\n"};
  const std::string page = ops::testing::support_matrix(registry, tables);
  EXPECT_NE(page.find("| glu | 2 | sm_90, gfx942 1 of 2 | sim32, sim64 | gfx942 1 of 2 | sm_90 (2026-01-02, abc) |\n"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("| add | 1 | sm_90, gfx942 | sim32, sim64 | gfx942 | never |\n"), std::string::npos) << page;
  EXPECT_NE(page.find("| clamp | 0 | not listed yet | sim32, sim64 | not listed yet | never |\n"), std::string::npos);
}

TEST(SupportMatrix, RefusesADeviceRunWithoutItsReport) {
  EXPECT_THROW(ops::device_runs("architecture\top\tdate\tcommit\treport\nsm_90\tglu\t2026-01-02\tabc\n"), Error);
  EXPECT_TRUE(ops::device_runs("# none yet\narchitecture\top\tdate\tcommit\treport\n").empty());
}

#if defined(__x86_64__)
// `INGOT_WRITE_DOCS=1 test_backend_gpu --gtest_filter=SupportMatrix.*` writes the page.
TEST(SupportMatrix, PageIsCurrent) {
  ops::Registry registry;
  cpu::register_ops(registry, {cpu::Isa::amx, true});
  gpu::register_ops(registry, DeviceKind::sim);
  const std::string expected =
      ops::testing::support_matrix(registry, {text_of("tools/device_code.tsv"), text_of("tools/emulated_kernels.tsv"),
                                              text_of("bench/reports/device_runs.tsv")});
  const std::string path = "docs/support-matrix.md";
  if (std::getenv("INGOT_WRITE_DOCS") != nullptr) {
    std::ofstream(std::string(test_data) + "/../../" + path) << expected;
  }
  EXPECT_TRUE(text_of(path) == expected)
      << "docs/support-matrix.md is out of date: INGOT_WRITE_DOCS=1 build/release/tests/test_backend_gpu "
         "--gtest_filter=SupportMatrix.* writes it";
}
#endif

}  // namespace
}  // namespace ingot
