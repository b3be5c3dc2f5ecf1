// The shipped recipe of every family on a tiny model of that family: the golden shape with the vocabulary and tokenizer
// of recipes/models/tiny, pretrained for one step from random weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "tests/e2e/program.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

const fs::path source = source_root;

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(source / "recipes/families")) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class FamilyRecipe : public testing::TestWithParam<std::string> {
 protected:
  // Paths in recipes are relative to the current folder of ingot.
  void SetUp() override { fs::current_path(source); }
  void TearDown() override { fs::current_path(before_); }

  // Writes configuration and tokenizer, without weights.
  fs::path shape() const {
    const fs::path folder = program_ / "shape", tiny = source / "recipes/models/tiny";
    fs::create_directories(folder);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) fs::copy_file(tiny / name, folder / name);
    Json config = Json::parse(read(fs::path(test_data) / GetParam() / "a/config.json"));
    config["vocab_size"] = Json::parse(read(tiny / "config.json"))["vocab_size"];
    for (const char* context : {"max_position_embeddings", "n_positions", "max_seq_len"}) {
      if (config.contains(context)) config[context] = 1024;  // the longest sequence_length of a recipe
    }
    write(folder / "config.json", config.dump());
    return folder;
  }

  // The beginning of the recipe's first held-out document, so that an evaluation is short.
  fs::path held_out() const {
    const std::string recipe = read("recipes/families/" + GetParam() + ".yaml");
    const size_t begin = recipe.find("eval: data/") + 6;
    const std::string documents = read(recipe.substr(begin, recipe.find('\n', begin) - begin));
    Json document = Json::parse(documents.substr(0, documents.find('\n')));
    if (document.contains("text")) {
      const std::string text = document["text"];
      document["text"] = text.substr(0, text.find(' ', 4000));
    }
    write(program_ / "heldout.jsonl", document.dump());
    return program_ / "heldout.jsonl";
  }

  void succeeds(const std::vector<std::string>& arguments) const {
    const Result result = program_.run(arguments);
    ASSERT_EQ(result.code, 0) << arguments[0] << ": " << result.error;
  }

  Program program_;
  fs::path before_ = fs::current_path();
};

TEST_P(FamilyRecipe, TrainsOnTheShippedData) {
  const std::string runs = "run_dir=" + (program_ / "runs").string();
  write(program_ / "base.yaml",
        "name: base\ninit: random\nmodel: " + shape().string() +
            "\ndata: {train: data/examples/chat_heldout.jsonl, sequence_length: 128}\nsteps: 1\nbatch: {global: 1}\n");
  ASSERT_NO_FATAL_FAILURE(succeeds({"pretrain", (program_ / "base.yaml").string(), runs}));
  const std::string model = (program_ / "runs/base/model").string();
  ASSERT_NO_FATAL_FAILURE(succeeds({"finetune", "recipes/families/" + GetParam() + ".yaml", "model=" + model,
                                    "data.eval=" + held_out().string(), "name=tuned", "steps=3", runs}));

  const std::string adapter = (program_ / "runs/tuned/adapter").string();
  const std::vector<std::string> score = {"score", "--model", model, "--text", "My fellow Americans"};
  std::vector<std::string> tuned_score = score;
  tuned_score.insert(tuned_score.end(), {"--adapter", adapter});
  const Json base = program_.report(score), tuned = program_.report(tuned_score);
  EXPECT_NE(base["loss"], tuned["loss"]) << "training did not change the adapter";
  const Json answer = program_.report(
      {"generate", "--model", model, "--adapter", adapter, "--prompt", "My fellow", "--max-tokens", "8"});
  EXPECT_TRUE(answer["ids"].size() == 8 || answer["finish_reason"] == "stop") << answer;
}

// Only the frozen base is rounded (with fp8 also the operands of gemms), so losses are near those in bf16, but not
// equal.
TEST(FewBits, TrainNearlyLikeBf16) {
  const Program program;
  const std::string runs = "run_dir=" + (program / "runs").string();
  const std::string data = "\nbatch: {global: 1}\ndata: {sequence_length: 128, train: " +
                           (source / "data/examples/chat_heldout.jsonl").string() + "}\n";
  write(program / "pretrain.yaml",
        "name: base\ninit: random\nsteps: 1\nmodel: " + (source / "recipes/models/tiny").string() + data);
  ASSERT_EQ(program.run({"pretrain", (program / "pretrain.yaml").string(), runs}).code, 0);
  write(program / "finetune.yaml",
        "adapter: {rank: 4}\nsteps: 2\nmodel: " + (program / "runs/base/model").string() + data);
  // The loss of the second step with these settings.
  const auto loss = [&](const std::string& command, const std::string& name, std::vector<std::string> settings) {
    settings.insert(settings.begin(), {command, (program / (command + ".yaml")).string(), "name=" + name, runs});
    const Result result = program.run(settings);
    EXPECT_EQ(result.code, 0) << result.error;
    std::istringstream events(read(program / "runs" / name / "events.jsonl"));
    double second = 0;
    for (std::string line; std::getline(events, line);) {
      const Json event = Json::parse(line);
      if (event["type"] == "step" && event["step"] == 2) second = event["loss"];
    }
    return second;
  };
  const auto expect_near = [](double found, double expected) {
    EXPECT_NE(found, expected);
    EXPECT_NEAR(found, expected, 0.01 * expected);
  };
  const double tuned = loss("finetune", "tuned", {});
  const double int8 = loss("finetune", "int8", {"weights=int8"});
  expect_near(int8, tuned);
  const double int4 = loss("finetune", "int4", {"weights=int4"});
  expect_near(int4, tuned);
  EXPECT_NE(int4, int8);
  const double fp8_base = loss("finetune", "fp8_base", {"weights=fp8"});
  expect_near(fp8_base, tuned);
  const double fp8_tuned = loss("finetune", "fp8_tuned", {"precision=fp8"});
  expect_near(fp8_tuned, tuned);
  EXPECT_NE(fp8_tuned, fp8_base);
  expect_near(loss("pretrain", "fp8_trained", {"precision=fp8", "steps=2"}),
              loss("pretrain", "trained", {"precision=bf16", "steps=2"}));
}

// The planned bytes of the engine that samples eval.prompts (three digits).
double planned_for_samples(const std::string& dry_run) {
  const std::string name = "samples' engine";
  const size_t at = dry_run.find(name);
  EXPECT_NE(at, std::string::npos) << dry_run;
  if (at == std::string::npos) return 0;
  std::istringstream row(dry_run.substr(at + name.size()));
  double value = 0;
  std::string unit;
  row >> value >> unit;
  return value * (unit == "MiB" ? 1 << 20 : unit == "KiB" ? 1 << 10 : 1);
}

// On a device whose memory the host cannot access, the engine has one copy of the adapter per prompt.
TEST(DryRun, CountsAdapterCopiesForSamples) {
  const Program program;
  const std::string text(2000, 'a');
  write(program / "text.txt", text);
  write(program / "recipe.yaml", "name: planned\nmodel: " + make_text_model(program, false) +
                                     "\ndata: {sequence_length: 32, train: " + (program / "text.txt").string() +
                                     "}\nadapter: {rank: 32, targets: [all-linear]}\nsteps: 1\nbatch: {global: 1}\n" +
                                     "eval: {prompts: [one, two, three]}\nthreads: 1\n");
  const auto planned = [&](const std::string& device) {
    const Result result = program.run({"finetune", (program / "recipe.yaml").string(), "--dry-run",
                                       "run_dir=" + (program / "runs").string(), "device=" + device});
    EXPECT_EQ(result.code, 0) << result.error;
    return planned_for_samples(result.output);
  };
  const Json shape = Json::parse(read(fs::path(llama("a")) / "config.json"));
  const double hidden = shape["hidden_size"], ffn = shape["intermediate_size"], layers = shape["num_hidden_layers"];
  // Layers between the hidden state and the MLP only, in bf16.
  const double copy = layers * 3 * (hidden + ffn) * 32 * 2;
  EXPECT_GT(planned("sim32"), planned("cpu") + 3 * copy);
}

struct Published {
  const char* recipe;
  int64_t parameters;
};

// MPT without biases, with ALiBi: a V x d embedding tied to the head; in each of L blocks four d x d and two d x 4d
// matrices and two norms; and the last norm.
constexpr int64_t mpt(int64_t d, int64_t layers) { return 50368 * d + layers * (12 * d * d + 2 * d) + d; }
// GPT-2 also has 1024 positions and a bias for every norm and matrix (3 d + d + 4 d + d per block).
constexpr int64_t gpt2(int64_t d, int64_t layers) {
  return (50257 + 1024) * d + layers * (12 * d * d + 13 * d) + 2 * d;
}
static_assert(gpt2(768, 12) == 124439808);

const Published published[] = {{"mpt-125m", mpt(768, 12)}, {"mpt-350m", mpt(1024, 24)}, {"mpt-760m", mpt(1536, 24)},
                               {"mpt-1b", mpt(2048, 24)},  {"mpt-3b", mpt(2560, 32)},   {"mpt-7b", mpt(4096, 32)},
                               {"mpt-13b", mpt(5120, 40)}, {"gpt2-124m", 124439808},    {"gpt2-355m", 354823168},
                               {"gpt2-774m", 774030080},   {"gpt2-1558m", 1557611200},  {"llama-3.1-8b", 8030261248}};

class PretrainRecipe : public testing::TestWithParam<Published> {
 protected:
  void SetUp() override { fs::current_path(source); }
  void TearDown() override { fs::current_path(before_); }
  std::string recipe() const { return std::string("recipes/pretrain/") + GetParam().recipe + ".yaml"; }

  Program program_;
  fs::path before_ = fs::current_path();
};

TEST_P(PretrainRecipe, DryRunReportsParametersAndMemory) {
  const Result result = program_.run({"pretrain", recipe(), "--dry-run"});
  ASSERT_EQ(result.code, 0) << result.error;
  const std::string parameters = std::to_string(GetParam().parameters);
  EXPECT_NE(result.output.find(parameters + " of " + parameters + " parameters trained"), std::string::npos)
      << result.output;
  for (const char* word :
       {"GFLOP a token", "weights", "optimizer state", "gradients", "saved activations", "total", "no data.train"}) {
    EXPECT_NE(result.output.find(word), std::string::npos) << word << " not found in: " << result.output;
  }
}

TEST_P(PretrainRecipe, WithoutDataItIsAnError) { program_.refuses({"pretrain", recipe()}, 2, "no data.train"); }

// A narrow model of the recipe's family, with the recipe's hyper-parameters and vocabulary, so that steps are short.
TEST_P(PretrainRecipe, TrainsOnGivenData) {
  Json config = Json::parse(read(fs::path("recipes/models") / GetParam().recipe / "config.json"));
  const auto set = [&](const char* key, int64_t value) {
    if (config.contains(key)) config[key] = value;
  };
  for (const char* key : {"d_model", "n_embd", "hidden_size", "intermediate_size"}) set(key, 32);
  for (const char* key : {"n_layers", "n_layer", "num_hidden_layers"}) set(key, 1);
  for (const char* key : {"n_heads", "n_head", "num_attention_heads", "num_key_value_heads"}) set(key, 2);
  fs::create_directories(program_ / "shape");
  write(program_ / "shape/config.json", config.dump());
  const Result result = program_.run({"pretrain", recipe(), "data.train=data/examples/chat_heldout.jsonl",
                                      "tokenizer=recipes/models/tiny", "model=" + (program_ / "shape").string(),
                                      "steps=2", "schedule.warmup_steps=1", "batch.global=2", "data.sequence_length=64",
                                      "run_dir=" + (program_ / "runs").string()});
  ASSERT_EQ(result.code, 0) << result.error;
  const fs::path model = program_ / "runs" / GetParam().recipe / "model";
  EXPECT_EQ(read(model / "tokenizer.json"), read("recipes/models/tiny/tokenizer.json"));
  EXPECT_EQ(program_.report({"model", "inspect", model.string()})["vocab"], config["vocab_size"]);
}

INSTANTIATE_TEST_SUITE_P(All, PretrainRecipe, testing::ValuesIn(published), [](const auto& info) {
  std::string name = info.param.recipe;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

INSTANTIATE_TEST_SUITE_P(All, FamilyRecipe, testing::ValuesIn(families()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ingot::e2e
