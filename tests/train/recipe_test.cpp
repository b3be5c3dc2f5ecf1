#include "train/recipe.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/locations.h"
#include "tests/train/run_files.h"

namespace ingot::train {
namespace {

class RecipeTest : public testing::Test {
 protected:
  RunFiles files_;

  Recipe read(const std::string& text, std::vector<std::string> overrides = {}) const {
    const std::filesystem::path path = files_.path() / "recipe.yaml";
    std::ofstream(path) << text;
    return read_recipe(path, overrides);
  }
  std::string refused(const std::string& text, std::vector<std::string> overrides = {}) const {
    return refusal(ErrorKind::usage, [&] { read(text, overrides); });
  }
  static constexpr const char* least = "name: run\nmodel: m\ndata: {train: t.jsonl}\nsteps: 5\n";
};

TEST_F(RecipeTest, ShippedRecipesSurviveARoundTrip) {
  const std::filesystem::path folder = std::filesystem::path(test_data).parent_path().parent_path() / "recipes";
  int64_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string written = write_recipe(read_recipe(entry.path(), {}));
    EXPECT_EQ(write_recipe(read(written)), written) << entry.path();
    ++found;
  }
  EXPECT_GE(found, 3);
}

TEST_F(RecipeTest, EverySettingSurvivesARoundTrip) {
  const Recipe first = read(R"(
name: every
model: some/model
adapter: {rank: 8, alpha: 12.5, dropout: 0.05, targets: [q_proj, down_proj], rslora: true}
data:
  train: [{path: "a: b.jsonl", weight: 0.5}, {path: c.txt}]
  eval: d.jsonl
  format: completion
  on_error: skip
  sequence_length: 512
  packing: false
  too_long: stop
  seed: 3
optimizer: {lr: 3.0e-5, betas: [0.8, 0.999], eps: 1.0e-12, weight_decay: 0.1, clip_grad_norm: 0.3,
            state_dtype: bf16, master: bf16}
schedule: {name: linear, warmup_steps: 7, min_lr: 1.0e-7}
epochs: 2.5
batch: {global: 12, micro: 4}
precision: bf16
weights: stored
determinism_unit: 2
recompute: selective
eval: {every: 9, prompts: ["Say \"yes\"", "two\nlines"], sample_tokens: 5}
checkpoint: {every: 4, keep: 3}
device: cpu
threads: 3
affinity: 8,0-1
run_dir: out
seed: 99
)");
  const Recipe r = read(write_recipe(first));
  EXPECT_EQ(write_recipe(r), write_recipe(first));
  EXPECT_EQ(r.adapter->rank.value, 8);
  EXPECT_EQ(r.adapter->alpha.value, 12.5);
  EXPECT_EQ(r.adapter->dropout, 0.05);
  EXPECT_EQ(r.adapter->targets, (std::vector<std::string>{"q_proj", "down_proj"}));
  EXPECT_TRUE(r.adapter->rslora);
  ASSERT_EQ(r.data.train.values.size(), 2U);
  EXPECT_EQ(r.data.train.values[0].path, "a: b.jsonl");
  EXPECT_EQ(r.data.train.values[0].weight, 0.5);
  EXPECT_EQ(r.data.eval.values.at(0).path, "d.jsonl");
  EXPECT_EQ(r.data.format, data::Format::completion);
  EXPECT_EQ(r.data.on_error, data::OnError::skip);
  EXPECT_EQ(r.data.too_long, data::TooLong::stop);
  EXPECT_FALSE(r.data.packing);
  EXPECT_EQ(r.optimizer.lr, 3e-5);
  EXPECT_EQ(r.optimizer.betas, (std::vector<double>{0.8, 0.999}));
  EXPECT_EQ(r.optimizer.eps, 1e-12);
  EXPECT_EQ(r.optimizer.state_dtype, StateType::bf16);
  EXPECT_EQ(r.optimizer.master, MasterType::bf16);
  EXPECT_EQ(r.schedule.name, ScheduleName::linear);
  EXPECT_EQ(r.schedule.min_lr, 1e-7);
  EXPECT_FALSE(r.steps);
  EXPECT_EQ(r.epochs, 2.5);
  EXPECT_EQ(r.batch.micro.value, 4);
  EXPECT_EQ(r.weights, "stored");
  EXPECT_EQ(r.recompute, spec::Recompute::selective);
  EXPECT_EQ(r.eval.prompts, (std::vector<std::string>{"Say \"yes\"", "two\nlines"}));
  EXPECT_EQ(r.threads.value, 3);
  EXPECT_EQ(r.affinity, "8,0-1");
  EXPECT_EQ(cpus_of(r.affinity), (std::vector<int>{8, 0, 1}));
  EXPECT_EQ(r.seed, 99);
}

TEST_F(RecipeTest, WarmUpIsStepsOrAShareUnderEitherName) {
  const auto warmup = [&](const std::string& lines, const std::vector<std::string>& overrides = {}) {
    return read(least + lines, overrides).schedule.warmup;
  };
  EXPECT_EQ(warmup("").in(100), 0);
  EXPECT_EQ(warmup("schedule: {warmup: 12}\n").in(100), 12);
  EXPECT_EQ(warmup("schedule: {warmup_steps: 12}\n").in(100), 12);
  EXPECT_EQ(warmup("schedule: {warmup: 12.5%}\n").in(100), 12);
  EXPECT_EQ(warmup("schedule: {warmup_steps: 5%}\n").in(100), 5);
  // An override wins, whichever name the file uses.
  EXPECT_EQ(warmup("schedule: {warmup: 5%}\n", {"schedule.warmup_steps=3"}).in(100), 3);
  EXPECT_EQ(warmup("schedule: {warmup_steps: 3}\n", {"schedule.warmup=5%"}).in(100), 5);
  for (const char* written : {"warmup: 5%", "warmup: 2.5%", "warmup: 700"}) {
    const Recipe recipe = read(fmt::format("{}schedule: {{{}}}\n", least, written));
    EXPECT_NE(write_recipe(recipe).find(written), std::string::npos) << write_recipe(recipe);
    EXPECT_EQ(write_recipe(read(write_recipe(recipe))), write_recipe(recipe));
  }

  for (const char* wrong : {"100%", "-1%", "5 %", "'%'", "nan%", "five%", "-1", "1.5", "5e-2", "[5%]"}) {
    const std::string text = refused(fmt::format("{}schedule: {{warmup: {}}}\n", least, wrong));
    EXPECT_NE(text.find("recipe.yaml:5: schedule.warmup"), std::string::npos) << wrong << ": " << text;
  }
  for (const std::string& text : {refused(std::string(least) + "schedule: {warmup: 5%, warmup_steps: 3}\n"),
                                  refused(least, {"schedule.warmup=5%", "schedule.warmup_steps=3"})}) {
    EXPECT_NE(text.find("'schedule.warmup' and 'schedule.warmup_steps' are the same setting"), std::string::npos)
        << text;
  }
  const nlohmann::json schema = nlohmann::json::parse(recipe_schema());
  const auto& schedule = schema["properties"]["schedule"]["properties"];
  EXPECT_EQ(schedule["warmup_steps"]["deprecated"], true);
  EXPECT_EQ(schedule["warmup"]["anyOf"][1]["pattern"], R"(^[0-9]{1,2}(\.[0-9]+)?%$)");
}

TEST_F(RecipeTest, ReadsTimedCheckpoints) {
  EXPECT_TRUE(read(least).checkpoint.minutes.is_auto());
  EXPECT_EQ(read(std::string(least) + "checkpoint: {minutes: 2.5}\n").checkpoint.minutes.value, 2.5);
  EXPECT_EQ(read(least, {"checkpoint.minutes=0"}).checkpoint.minutes.value, 0);
  refused(least, {"checkpoint.minutes=-1"});
}

TEST_F(RecipeTest, UnknownKeysSuggestTheNearest) {
  for (const auto& [line, word] : {std::pair{"optimiser: {lr: 1}", "optimizer"},
                                   {"recomputee: full", "recompute"},
                                   {"batch: {gobal: 4}", "global"},
                                   {"precision: fp23", "fp32"},
                                   {"adapter: {rnak: 4}", "rank"}}) {
    const std::string text = refused(std::string(least) + line + "\n");
    EXPECT_NE(text.find(word), std::string::npos) << text;
    EXPECT_NE(text.find("recipe.yaml"), std::string::npos) << text;
  }
}

TEST_F(RecipeTest, ContradictionsAreRefused) {
  for (const auto& [lines, word] :
       {std::pair{"epochs: 2", "length"},
        {"optimizer: {lr: 1e-4}\nschedule: {min_lr: 1e-3}", "min_lr"},
        {"optimizer: {betas: [0.9]}", "betas"},
        {"optimizer: {name: adam}", "adamw, muon, sgd, lion"},
        {"optimizer: {momentum: 0.9}", "optimizer.name: muon or sgd"},
        {"optimizer: {name: lion, momentum: 0.9}", "momentum is not a setting of lion"},
        {"optimizer: {name: sgd, betas: [0.9, 0.95]}", "adamw, muon or lion"},
        {"optimizer: {name: sgd, eps: 1e-8}", "eps is not a setting of sgd"},
        {"optimizer: {name: lion, eps: 1e-8}", "adamw or muon"},
        {"optimizer: {name: muon, momentum: 1}", "momentum"},
        {"optimizer: {master: int8}", "master"},
        {"precision: fp32\noptimizer: {master: bf16}", "master"},
        {"precision: fp16", "it needs loss scaling"},
        {"weights: stored", "adapter"},
        {"weights: fp8", "adapter"},
        {"weights: int4", "adapter"},
        {"adapter: {rank: 4}\nweights: int5", "int4"},
        {"adapter: {rank: 4}\nprecision: fp8\nweights: int8", "but weights is int8"},
        {"optimizer: {state_dtype: fp8}", "state_dtype"},
        {"precision: bf16\nfp8_gradients: e5m2", "fp8_gradients"},
        {"init: random\nadapter: {rank: 4}", "random"},
        {"batch: {global: 3}\ndeterminism_unit: 2", "determinism_unit"},
        {"batch: {global: 4, micro: 3}\ndeterminism_unit: 2", "batch.micro"},
        {"affinity: all", "affinity: CPU list 'all'"},
        {"affinity: 2-0", "is descending"},
        {"affinity: 0,0", "CPU 0 is listed twice"},
        {"affinity: ''", "affinity"},
        {"parallel: {tp: 2}\ndeterminism: bitwise", "determinism: bitwise with parallel.tp 2"},
        {"parallel: {tp: 2, units: 1}\ndeterminism: bitwise", "set parallel.units to 2 or a larger power"},
        {"parallel: {tp: 3}\ndeterminism: bitwise", "set determinism: fast, or parallel.tp to 1"},
        {"parallel: {cp: 4, units: 2}\ndeterminism: bitwise", "with parallel.cp 4 and parallel.units 2"},
        {"parallel: {tp: 4, units: 2}\ndeterminism: bitwise", "with parallel.tp 4 and parallel.units 2"},
        {"parallel: {units: 6}\ndeterminism: bitwise", "parallel.units 6 is not a power of two"},
        {"parallel: {units: 6}\ndeterminism: bitwise", "use 4 or 8"},
        {"parallel: {units: 0}\ndeterminism: bitwise", "parallel.units"},
        {"parallel: {units: 2}", "determinism: fast with parallel.units 2"},
        {"parallel: {units: 2}\ndeterminism: bitwise\nprecision: fp8", "precision: fp8 with parallel.units 2"},
        {"parallel: {units: 2}\ndeterminism: bitwise\nadapter: {rank: 4}\nweights: fp8",
         "weights: fp8 with parallel.units 2"},
        {"parallel: {units: 2}\ndeterminism: bitwise\noptimizer: {name: muon}", "muon with parallel.units 2"},
        {"parallel: {units: 2}\ndeterminism: bitwise\noptimizer: {state_dtype: int8}", "int8 with parallel.units 2"},
        {"parallel: {sequence_parallel: true}", "parallel.sequence_parallel with parallel.tp 1"},
        {"parallel: {tp: 3, cp: 5, sequence_parallel: true}", "cannot be divided among parallel.tp 3 x parallel.cp 5"},
        {"parallel: {tp: 3, cp: 5, sequence_parallel: true}", "use 1020 or 1035"},
        {"parallel: {tp: 2, cp: 2, units: 2, sequence_parallel: true}\ndeterminism: bitwise",
         "set parallel.units to 4 or a larger power of two, or set determinism: fast, or parallel.sequence_parallel to "
         "false"},
        {"parallel: {tp: 2}\noptimizer: {name: muon}", "muon with parallel.tp 2"},
        {"parallel: {tp: 2}\noptimizer: {state_dtype: int8}", "int8 with parallel.tp 2"},
        {"parallel: {tp: 2}\neval: {prompts: [hello]}",
         "eval.prompts with parallel.pp 1, parallel.tp 2 and parallel.ep 1"},
        {"parallel: {cp: 2}\ndeterminism: bitwise", "determinism: bitwise with parallel.cp 2"},
        {"parallel: {cp: 2, units: 4, cp_comm_type: allgather}\ndeterminism: bitwise",
         "gradients of keys and values are sums over the ranks"},
        {"parallel: {cp: 2, units: 4, cp_comm_type: p2p}\ndeterminism: bitwise",
         "parallel.cp_comm_type: p2p: gradients"},
        {"parallel: {cp: 2, cp_comm_type: a2a+p2p}", "allgather"},
        {"parallel: {dp: 2, pp: 2, zero: 2}", "parallel.zero 2 with parallel.pp 2"},
        {"parallel: {chunks: 2}", "parallel.chunks 2 with parallel.pp 1"},
        {"parallel: {dp: 2, zero: 3, bucket_mib: 32}", "parallel.bucket_mib 32 with parallel.zero 3"},
        {"parallel: {dp: 4, shard: 2}", "parallel.shard 2 with parallel.zero 0"},
        {"parallel: {pp: 2}\neval: {prompts: [hello]}", "eval.prompts with parallel.pp 2"},
        {"parallel: {dp: 2, zero: 1, shard: 1, offload: optimizer}\nprecision: bf16",
         "parallel.offload: optimizer with 2 ranks and parallel.shard 1"},
        {"parallel: {pp: 2, chunks: 2}", "the schedule 1f1b has 1 chunk a rank, not 2"},
        {"parallel: {pp: 2, schedule: zb_v, chunks: 3}", "zb_v has 2 chunks"},
        {"parallel: {pp: 2, schedule: interleaved, chunks: 1}", "several chunks"},
        {"parallel: {pp: 2, schedule: 2f2b}", "1f1b"},
        {"determinism: exact", "bitwise"},
        {"adapter: {dropout: 1}", "dropout"}}) {
    const std::string text = refused(std::string(least) + lines + "\n");
    EXPECT_NE(text.find(word), std::string::npos) << lines << ": " << text;
  }
  EXPECT_NE(refused("name: run\nmodel: m\ndata: {train: t}\n").find("no length"), std::string::npos);
  EXPECT_NE(refused("name: a/b\nmodel: m\ndata: {train: t}\nsteps: 1\n").find("a/b"), std::string::npos);
  EXPECT_NE(refused("name: a\ndata: {train: t}\nsteps: 1\n").find("model"), std::string::npos);
}

// The "billion laughs" document and similar ones are refused immediately, with the line and the reason.
TEST_F(RecipeTest, HostileRecipesAreRefusedWithTheReason) {
  std::string laughs = "a0: &a0 [lol, lol]\n";
  for (int i = 1; i < 30; ++i) laughs += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
  const std::pair<std::string, const char*> texts[] = {
      {laughs, "recipe.yaml:1: anchors (&name) are not accepted"},
      {std::string(least) + "optimizer: *x\n", "recipe.yaml:5: "},
      {std::string(least) + "<<: {seed: 3}\n", "unknown key '<<'"},
      {std::string(least) + "seed: " + std::string(201, '[') + std::string(201, ']') + "\n",
       "nested deeper than 200 levels"},
      {std::string(least) + "seed: " + std::string(100'000, '[') + "\n", "recipe.yaml:5: "},
      {std::string(least) + "seed: " + std::string(100'000, '{') + "\n", "recipe.yaml:5: "},
      {std::string(least) + "eval: {prompts: [" + std::string(400'000, ',') + "]}\n", "recipe.yaml:5"},
      {std::string(least) + "steps: 6\n", "recipe.yaml:5: the key 'steps' is written twice"},
      {std::string(least) + "optimizer: {lr: 1, \"lr\": 2}\n", "the key 'optimizer.lr' is written twice"},
      {std::string(least) + "optimizer: {lr: .nan}\n", "optimizer.lr: expected a number"},
      {std::string(least) + "optimizer: {lr: nan}\n", "optimizer.lr: expected a number"},
      {std::string(least) + "optimizer: {eps: .inf}\n", "optimizer.eps: expected a number"},
      {std::string(least) + "optimizer: {eps: 1e999}\n", "optimizer.eps: expected a number"},
      {std::string(least) + "optimizer: {betas: [0.9, inf]}\n", "optimizer.betas[1]: expected a number"},
      {std::string(least) + "seed: 9223372036854775808\n", "seed: expected a whole number"},
      {std::string(least) + "seed: 1e300\n", "seed: expected a whole number"},
      {std::string(least) + "seed: 0x10\n", "seed: expected a whole number"},
      {std::string(least) + "seed: 1.5\n", "seed: expected a whole number"},
      {std::string(least) + "batch: {global: 9007199254740992}\n", "batch.global: expected a number of at least 1"},
      {std::string(least) + "batch: {micro: 1e15}\n", "batch.micro: expected a number of at least 1"},
      {"name: a\nmodel: m\ndata: {train: t}\nepochs: 1e300\n", "epochs: expected a number"},
      {"name: a\nmodel: m\ndata: {train: t}\ntokens: 1e16\n", "tokens: expected a"},
      {std::string(least) + "seed: !!int 3\n", "the tag"},
      {std::string(least) + "---\nname: b\n", "a second YAML document"},
      {std::string(least) + "? [a]\n: b\n", "a key must be plain text"},
      {std::string("name: \xff\n"), "is not UTF-8"},
      {std::string("name: a\0b\n", 10), "zero byte"},
      {"", "is missing"}};
  for (const auto& [text, words] : texts) {
    const std::string message = refused(text);
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot found in\n" << message;
  }
  const std::string large =
      refusal(ErrorKind::resource, [&] { read(std::string(least) + "# " + std::string(size_t{1} << 20, 'x') + "\n"); });
  EXPECT_NE(large.find("recipe.yaml"), std::string::npos) << large;
}

TEST_F(RecipeTest, AnOverrideOfTheLengthClearsTheOthers) {
  EXPECT_EQ(read(least, {"steps=9"}).steps, 9);
  const Recipe epochs = read(least, {"epochs=1.5"});
  EXPECT_FALSE(epochs.steps);
  EXPECT_EQ(epochs.epochs, 1.5);
  const Recipe tokens = read(least, {"epochs=1.5", "tokens=1000"});
  EXPECT_FALSE(tokens.epochs);
  EXPECT_EQ(tokens.tokens, 1000);
  EXPECT_EQ(read(least, {"epochs=1", "steps=3"}).steps, 3);
}

TEST_F(RecipeTest, OverridesReachNestedKeys) {
  const Recipe r = read(least, {"optimizer.lr=1e-5", "adapter.rank=auto", "data.train=[x.txt, y.txt]"});
  EXPECT_EQ(r.optimizer.lr, 1e-5);
  ASSERT_TRUE(r.adapter);
  EXPECT_TRUE(r.adapter->rank.is_auto());
  EXPECT_EQ(r.data.train.values.size(), 2U);
  EXPECT_NE(refused(least, {"optimizer.lrr=1"}).find("lr"), std::string::npos);
}

TEST_F(RecipeTest, TheSchemaContainsEveryKey) {
  const nlohmann::json schema = nlohmann::json::parse(recipe_schema());
  const std::string written = write_recipe(read(least));
  int64_t found = 0;
  std::istringstream lines(written);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (line.empty() || line[0] == ' ' || line[0] == '#' || line[0] == '-' || colon == std::string::npos) continue;
    EXPECT_TRUE(schema.at("properties").contains(line.substr(0, colon))) << line;
    ++found;
  }
  EXPECT_EQ(static_cast<size_t>(found), schema.at("properties").size());
}

}  // namespace
}  // namespace ingot::train
