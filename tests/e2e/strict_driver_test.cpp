// The program on the strict driver (tests/backend/gpu/strict): `cuda:0` and `hip:0` without a GPU.
#include "tests/e2e/strict_driver.h"

#include <gtest/gtest.h>

#include "tests/e2e/program.h"
#include "tests/sanitized.h"

namespace ingot::e2e {
namespace {

class StrictDriver : public testing::TestWithParam<StrictVendor> {
 protected:
  Result run(const std::vector<std::string>& arguments, const std::string& settings = "") const {
    return run_on_strict_driver(program_, {.settings = settings}, arguments);
  }
  Json report(const std::vector<std::string>& arguments, const std::string& settings = "") const {
    return report_on_strict_driver(program_, {.settings = settings}, arguments);
  }
  std::vector<std::string> generate(const std::string& device) const {
    return {"generate", "--model",   llama("a"), "--ids",    "1,5,9", "--max-tokens",
            "6",        "--threads", "1",        "--device", device};
  }

  Program program_;
};

TEST_P(StrictDriver, IsListed) {
  // The device of this vendor only: every device is measured.
  const Json found = report({"devices", "--seconds", "0.1"}, std::string("devices=1,arch=") + GetParam().architecture);
  std::vector<std::string> names;
  for (const Json& device : found.at("devices")) {
    names.push_back(device.at("name"));
    if (names.back() != GetParam().device) continue;
    EXPECT_EQ(device.at("arch"), GetParam().architecture);
    EXPECT_EQ(device.at("memory_available_bytes"), 1 << 30);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"cpu", GetParam().device})) << found;
}

// Fails where code is chosen by trial: these versions answer to foreign code with codes of their own.
TEST_P(StrictDriver, OldVersionsFindTheirCode) {
  const std::string settings = std::string("version=") + GetParam().old_version;
  EXPECT_EQ(report(generate(GetParam().device), settings).at("ids").size(), 6U);
}

TEST_P(StrictDriver, GeneratesAndTrainsWithTheBitsOfTheSimulatedDevice) {
  EXPECT_EQ(report(generate(GetParam().device)).at("ids"), report(generate(GetParam().simulated)).at("ids"));
  if (sanitized) return;
  std::string text;
  for (int i = 0; i < 12; ++i) text += R"({"text": "The number )" + std::to_string(i * i) + R"( is a square."})" + "\n";
  write(program_ / "train.jsonl", text);
  write(program_ / "recipe.yaml",
        "name: run\nmodel: " + make_text_model(program_, false) +
            "\ndata: {train: " + (program_ / "train.jsonl").string() +
            ", sequence_length: 24}\nadapter: {rank: 2}\noptimizer: {lr: 1e-3}\n" +
            "steps: 3\nbatch: {global: 2}\nthreads: 1\nrun_dir: " + (program_ / "runs").string() + "\n");
  // One device, and ranks on two devices that have only parts of the weights each; copies come late.
  const std::string kind = GetParam().kind();
  const auto adapter_of = [&](const std::string& name, const std::string& device, std::vector<std::string> more) {
    more.insert(more.begin(),
                {"finetune", (program_ / "recipe.yaml").string(), "--quiet", "name=" + name, "device=" + device});
    const Result result = run(more, "delay_us=100");
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(result.error.find("strict driver"), std::string::npos) << result.error;
    return read(program_ / "runs" / name / "adapter/adapter_model.safetensors");
  };
  const std::vector<std::string> ranks = {"threads=2", "parallel.dp=2", "parallel.zero=3"};
  const std::string one = adapter_of("one", GetParam().device, {});
  EXPECT_GT(one.size(), 100U);
  EXPECT_TRUE(one == adapter_of("one-simulated", GetParam().simulated, {}));
  const std::string two = adapter_of("two", kind, ranks);
  EXPECT_GT(two.size(), 100U);
  EXPECT_TRUE(two == adapter_of("two-simulated", GetParam().simulated, ranks));
}

TEST_P(StrictDriver, FaultsEndTheProgramWithAMessage) {
  const Result little = run(generate(GetParam().device), "memory=100000");
  EXPECT_EQ(little.code, 4) << little.error;
  EXPECT_NE(little.error.find("OutOfMemory"), little.error.find("OUT_OF_MEMORY")) << little.error;
  const Result lost = run(generate(GetParam().device), "lost_after=60");
  EXPECT_EQ(lost.code, 5) << lost.error;
  EXPECT_NE(lost.error.find("(999)"), std::string::npos) << lost.error;
  const Result other =
      run(generate(GetParam().device), std::string("arch=") + (GetParam().name[0] == 'C' ? "sm_75" : "gfx906"));
  EXPECT_EQ(other.code, 5) << other.error;
  EXPECT_NE(other.error.find("this build has no code"), std::string::npos) << other.error;
}

INSTANTIATE_TEST_SUITE_P(Vendors, StrictDriver, testing::ValuesIn(strict_vendors),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ingot::e2e
