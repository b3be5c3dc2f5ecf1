// docs/support-matrix.md says what the registries of the backends hold.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "app/bench/op_table.h"
#include "backend/cpu/isa.h"
#include "backend/gpu/ops.h"

namespace ingot {
namespace {

#if defined(__x86_64__)
// `INGOT_WRITE_DOCS=1 test_backend_gpu --gtest_filter=SupportMatrix.*` writes the page anew.
TEST(SupportMatrix, PageIsCurrent) {
  ops::Registry registry;
  cpu::register_ops(registry, {cpu::Isa::avx512, true});
  gpu::register_ops(registry, DeviceKind::sim);
  const std::string wanted = bench::support_matrix(registry);
  const std::string path = std::string(INGOT_TEST_DATA) + "/../../docs/support-matrix.md";
  if (std::getenv("INGOT_WRITE_DOCS") != nullptr) std::ofstream(path) << wanted;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == wanted)
      << "docs/support-matrix.md is out of date: INGOT_WRITE_DOCS=1 build/release/tests/test_backend_gpu "
         "--gtest_filter=SupportMatrix.* writes it";
}
#endif

}  // namespace
}  // namespace ingot
