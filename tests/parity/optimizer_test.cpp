// Ten steps of every optimizer except AdamW compared with torch and bitsandbytes
// (tools/reference/make_optimizer_golden.py), on the CPU and on simulated GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/parity/golden.h"

namespace ingot::parity {
namespace {

using train::OptimizerName;

struct Steps {
  const char* file;
  train::OptimizerDtypes types;
};

constexpr Steps all_steps[] = {{"muon.safetensors", {.optimizer = OptimizerName::muon}},
                               {"sgd.safetensors", {.optimizer = OptimizerName::sgd}},
                               {"lion.safetensors", {.optimizer = OptimizerName::lion}},
                               {"adamw_int8.safetensors", {.state = DType::u8}}};

std::vector<Subject> optimizer_subjects() {
  std::vector<Subject> all;
  for (const Subject& subject : golden_subjects()) {
    if (std::filesystem::exists(golden_folder(subject.model) / all_steps[0].file)) all.push_back(subject);
  }
  return all;
}

class GoldenOptimizer : public testing::TestWithParam<Subject> {};

TEST_P(GoldenOptimizer, TenStepsAgree) {
  Machine machine(2, GetParam().device);
  for (const Steps& steps : all_steps) {
    if (!std::filesystem::exists(golden_folder(GetParam().model) / steps.file)) continue;
    SCOPED_TRACE(steps.file);
    const formats::SafetensorsFile expected(golden_folder(GetParam().model) / steps.file);
    const auto bench = make_bench(machine, GetParam().model, {.types = steps.types, .steps = steps.file});
    expect_ten_steps(machine, *bench, GetParam().model, expected, "",
                     static_cast<double>(floats(expected, "lr").at(0)));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenOptimizer, testing::ValuesIn(optimizer_subjects()), name_of);

TEST(OptimizerFiles, Exist) {
  for (const Steps& steps : all_steps) {
    const std::vector<std::string> models = golden_models();
    EXPECT_TRUE(std::ranges::any_of(models, [&](const std::string& model) {
      return std::filesystem::exists(golden_folder(model) / steps.file);
    })) << steps.file;
  }
}

}  // namespace
}  // namespace ingot::parity
