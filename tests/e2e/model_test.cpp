// ingot model: inspect, convert, merge, pull, list.
#include <gtest/gtest.h>

#include <cstring>

#include "formats/npy.h"
#include "formats/safetensors.h"
#include "tensor/tolerance.h"
#include "tests/e2e/program.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> score(const std::string& model, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"score",   "--model", model,       "--ids", "1,5,9,12,30",
                                        "--dtype", "fp32",    "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<float> f32_values(const formats::TensorEntry& entry) {
  std::vector<float> values(entry.bytes.size() / sizeof(float));
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return values;
}

TEST(Inspect, ReportsItsFields) {
  const Program program;
  const Json report = program.report({"model", "inspect", llama("a")});
  const Json expected = {{"family", "llama"}, {"parameters", 70144}, {"layers", 2},   {"hidden", 64},
                         {"heads", 4},        {"kv_heads", 2},       {"vocab", 131},  {"context", 256},
                         {"dtype", "bf16"},   {"ffn", 96},           {"format", "hf"}};
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(report.at(key), value) << key;
}

TEST(Inspect, WritesATensorAsNpy) {
  const Program program;
  const std::string npy = (program / "t.npy").string();
  program.report({"model", "inspect", llama("b"), "--tensor", "lm_head.weight", "--npy", npy});
  const formats::NpyFile found(npy);
  const formats::SafetensorsFile model(llama("b") + "/model.safetensors");
  const formats::TensorEntry& expected = model.at("lm_head.weight");  // F32
  EXPECT_EQ(found.shape(), expected.shape);
  ASSERT_EQ(found.bytes().size(), expected.bytes.size());
  EXPECT_TRUE(std::equal(found.bytes().begin(), found.bytes().end(), expected.bytes.begin()));
}

TEST(Inspect, ErrorsNameTheFault) {
  const Program program;
  program.refuses({"model", "inspect", llama("a"), "--tensor", "x"}, 2, "--tensor and --npy must be given together");
  program.refuses({"model", "inspect", llama("a"), "--tensor", "model.norm.wait", "--npy", (program / "x").string()}, 3,
                  "model.norm.wait");
  program.refuses({"model", "inspect"}, 2, "model");
  program.refuses({"model"}, 2, "ubcommand");
}

// Conversion to GGUF and back changes nothing: same hash, same scores.
TEST(Convert, RoundTripKeepsHashAndScores) {
  const Program program;
  const std::string gguf = (program / "m.gguf").string(), back = (program / "back").string();
  for (const char* shape : {"a", "b", "c"}) {
    fs::remove_all(gguf);
    fs::remove_all(back);
    const std::string dtype = std::string(shape) == "b" ? "f32" : "bf16";  // the stored dtype
    const Json written = program.report({"model", "convert", llama(shape), gguf});
    EXPECT_EQ(written.at("format"), "gguf");
    EXPECT_EQ(written.at("dtype"), dtype);
    EXPECT_EQ(written.at("bytes"), fs::file_size(gguf));
    program.report({"model", "convert", gguf, back});
    EXPECT_EQ(program.report(score(gguf)), program.report(score(llama(shape))));
    EXPECT_EQ(program.report(score(back)), program.report(score(llama(shape))));
  }
}

TEST(Convert, HashDoesNotDependOnTensorOrder) {
  const Program program;
  const std::string copy = (program / "copy").string();
  program.report({"model", "convert", llama("b"), copy});
  const auto hash = [&](const std::string& model) {
    return program.report({"model", "inspect", model, "--hash"}).at("sha256").get<std::string>();
  };
  EXPECT_EQ(hash(copy), hash(llama("b")));
  EXPECT_NE(hash(llama("a")), hash(llama("b")));
  EXPECT_EQ(hash(copy).size(), 64);
}

TEST(Convert, ErrorsNameTheFault) {
  const Program program;
  const std::string out = (program / "out").string();
  write(out, "precious");
  program.refuses({"model", "convert", llama("a"), out}, 2, "already exists");
  EXPECT_EQ(read(out), "precious");
  const std::string fresh = (program / "fresh").string();
  program.refuses({"model", "convert", llama("a"), fresh, "--dtype", "q8_0"}, 2,
                  "--dtype q8_0 is only supported for GGUF");
  program.refuses({"model", "convert", llama("a"), fresh, "--dtype", "q3"}, 2, "--dtype 'q3'");
  program.refuses({"model", "convert", llama("a"), fresh, "--to", "onnx"}, 2, "--to 'onnx'");
  program.refuses({"model", "convert", (program / "gone").string(), fresh}, 3, "gone");
  EXPECT_FALSE(fs::exists(fresh));
}

TEST(Merge, ScoresLikeTheBaseWithTheAdapter) {
  const Program program;
  const std::string merged = (program / "merged").string();
  program.report({"model", "merge", llama("b"), "--adapter", llama("b") + "/lora", merged});
  const Json found = program.report(score(merged));
  const Json expected = program.report(score(llama("b"), {"--adapter", llama("b") + "/lora"}));
  const Json base = program.report(score(llama("b")));
  // The same sums in another order: they agree far better than the base and tuned models do.
  const double gap = std::abs(found.at("loss").get<double>() - expected.at("loss").get<double>());
  EXPECT_LT(gap, 1e-4 * std::abs(base.at("loss").get<double>() - expected.at("loss").get<double>()));
}

// After unmerging every matrix is the base's within the rounding of two fp32 sums, and all other tensors are identical.
TEST(Merge, UnmergeRestoresTheBase) {
  const Program program;
  const std::string adapter = llama("b") + "/lora";
  const std::string merged = (program / "merged").string(), back = (program / "back").string();
  program.report({"model", "merge", llama("b"), "--adapter", adapter, merged});  // fp32 as stored
  program.report({"model", "merge", "--unmerge", merged, "--adapter", adapter, back});
  const formats::SafetensorsFile base(llama("b") + "/model.safetensors"), with(merged + "/model.safetensors"),
      found(back + "/model.safetensors");
  int changed = 0;
  for (const formats::TensorEntry& entry : base.entries()) {
    const std::vector<float> expected = f32_values(entry), value = f32_values(found.at(entry.name)),
                             added = f32_values(with.at(entry.name));
    ASSERT_EQ(value.size(), expected.size()) << entry.name;
    if (added == expected) {
      EXPECT_EQ(value, expected) << entry.name;
      continue;
    }
    ++changed;
    for (size_t i = 0; i < value.size(); ++i) {
      const float largest = std::max(std::abs(expected[i]), std::abs(added[i]));
      ASSERT_NEAR(value[i], expected[i], tolerance(DType::f32, 2) * static_cast<double>(largest)) << entry.name;
    }
  }
  EXPECT_GT(changed, 0);
}

TEST(Merge, ErrorsNameTheFault) {
  const Program program;
  const std::string out = (program / "out").string();
  program.refuses({"model", "merge", llama("a"), out}, 2, "--adapter");
  program.refuses({"model", "merge", llama("a"), "--adapter", llama("b") + "/lora", out}, 3, "lora");
  fs::create_directory(out);
  program.refuses({"model", "merge", llama("a"), "--adapter", llama("a") + "/lora", out}, 2, "already exists");
}

TEST(Pull, RegistersAPathUnderAName) {
  const Program program;
  EXPECT_EQ(program.report({"model", "list"}).at("models"), Json::array());
  const Json pulled = program.report({"model", "pull", llama("a"), "--name", "tiny"});
  EXPECT_EQ(pulled.at("name"), "tiny");
  program.report({"model", "pull", llama("b"), "--name", "org/copied", "--copy"});
  const Json models = program.report({"model", "list"}).at("models");
  ASSERT_EQ(models.size(), 2);
  EXPECT_EQ(models[0]["name"], "org/copied");
  EXPECT_EQ(models[0]["family"], "llama");
  EXPECT_EQ(models[1]["name"], "tiny");
  EXPECT_EQ(models[1]["parameters"], 70144);
  EXPECT_EQ(program.report(score("tiny")), program.report(score(llama("a"))));
  EXPECT_EQ(program.report(score("org/copied")), program.report(score(llama("b"))));
  EXPECT_EQ(program.report(score("copied")),
            program.report(score(llama("b"))));  // the only registered name with this suffix
  program.report({"model", "pull", llama("a"), "--name", "other/copied"});
  program.refuses(score("copied"), 3, "'copied'");
}

TEST(Pull, ErrorsNameTheFault) {
  const Program program;
  program.refuses({"model", "pull", (program / "gone").string()}, 3, "gone");
  program.refuses({"model", "pull", llama("a"), "--name", "../up"}, 2, "../up");
  program.refuses({"score", "--model", "nobody/nothing", "--ids", "1,2"}, 3, "nobody/nothing");
}

}  // namespace
}  // namespace ingot::e2e
