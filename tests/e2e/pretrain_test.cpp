// Long runs: the automatic micro-batch, signals, restarts, the lock of the run folder, and replayed steps.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <sstream>

#include "base/file.h"
#include "tests/e2e/program.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

class Pretrain : public testing::Test {
 protected:
  Pretrain() {
    std::string text;
    for (int i = 0; i < 60; ++i) {
      text += R"({"text": "Document )" + std::to_string(i) + R"( speaks of the number )" + std::to_string(i * i) +
              R"( and of nothing else at all."})" + "\n";
    }
    write(program_ / "train.jsonl", text);
    write(program_ / "recipe.yaml",
          "name: run\nmodel: " + std::string(source_root) +
              "/recipes/models/tiny\ninit: random\ndata: {train: " + (program_ / "train.jsonl").string() +
              ", sequence_length: 64}\noptimizer: {lr: 1e-3}\nsteps: 6\n"
              "batch: {global: 6}\nthreads: 1\n");
  }

  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"pretrain", (program_ / "recipe.yaml").string(), "name=" + name,
                                      "run_dir=" + (program_ / "runs").string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  fs::path run(const std::string& name) const { return program_ / "runs" / name; }
  std::vector<Json> events(const std::string& name, const std::string& type) const {
    return events_of(run(name), type);
  }
  // Loss and gradient norm of each step.
  std::vector<std::pair<double, double>> curve(const std::string& name) const {
    std::vector<std::pair<double, double>> steps;
    for (const Json& e : events(name, "step")) steps.emplace_back(e["loss"], e["grad_norm"]);
    return steps;
  }
  void trains(const std::string& name, const std::vector<std::string>& more = {}) const {
    const Result result = program_.run(command(name, more));
    ASSERT_EQ(result.code, 0) << result.error;
  }

  Program program_;
};

// Ranks without any adapter: of three, which share the optimizer's state, and the lower stage of a pipeline.
TEST_F(Pretrain, AdaptersHaveTheSameBytesInEveryLayout) {
  ASSERT_NO_FATAL_FAILURE(trains("base", {"steps=1"}));
  const auto adapter = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words = command(name, more);
    words.front() = "finetune";
    words.insert(words.end(), {"init=pretrained", "model=" + (run("base") / "model").string(), "determinism=bitwise"});
    const Result result = program_.run(words);
    EXPECT_EQ(result.code, 0) << result.error;
    return result.code == 0 ? read_file(run(name) / "adapter" / "adapter_model.safetensors", uint64_t{1} << 30)
                            : "failed";
  };
  const std::string few = "adapter={rank: 4, targets: [layers.3.self_attn.q_proj]}";
  const std::string expected = adapter("one", {few});
  EXPECT_EQ(adapter("shared", {few, "parallel.dp=3", "parallel.zero=1", "threads=3"}), expected);
  EXPECT_EQ(adapter("stages", {few, "parallel.pp=2", "threads=2"}), expected);
  EXPECT_EQ(adapter("both",
                    {few, "parallel.pp=2", "parallel.dp=2", "parallel.zero=1", "parallel.schedule=zb_v", "threads=4"}),
            expected);
  const std::string all = "adapter={rank: 4, dropout: 0.1}";
  EXPECT_EQ(adapter("all-stages", {all, "parallel.pp=4", "threads=4", "batch.micro=2"}), adapter("all-one", {all}));
  // Shares of the base, in the type in which it is stored.
  for (const std::string weights : {"auto", "int8", "fp8"}) {
    const std::string stored = "weights=" + weights;
    EXPECT_EQ(adapter(weights + "-shared", {all, stored, "parallel.dp=3", "parallel.zero=3", "threads=3"}),
              adapter(weights + "-one", {all, stored}))
        << weights;
  }
  // Frozen weights that are on the device only while they are used.
  const auto simulated = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {all, "device=sim32", "steps=1", "batch.global=2", "data.sequence_length=32"});
    return adapter(name, more);
  };
  const std::string plain = simulated("plain", {});
  EXPECT_EQ(simulated("offloaded", {"parallel.offload=weights"}), plain);
  EXPECT_EQ(simulated("both-offloaded",
                      {"parallel.offload=weights", "parallel.dp=2", "parallel.zero=3", "threads=2", "batch.micro=1"}),
            plain);
}

TEST_F(Pretrain, WeightsThatCannotBeOffloadedAreRefused) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> refusals = {
      {{}, "parallel.offload: weights without an adapter"},
      {{"adapter={rank: 4}", "parallel.pp=2", "threads=2"}, "parallel.offload: weights with parallel.pp 2"},
      {{"adapter={rank: 4}", "parallel.dp=2", "threads=2"},
       "parallel.offload: weights with 2 ranks and parallel.zero 0"},
      {{"adapter={rank: 4}", "eval.prompts=[a]"}, "eval.prompts with parallel.offload"},
      {{"adapter={rank: 4}", "device=cpu"}, "weights are in host memory already"}};
  for (const auto& [settings, words] : refusals) {
    std::vector<std::string> more = settings;
    more.insert(more.end(), {"init=pretrained", "parallel.offload=weights"});
    const Result result = program_.run(command("wrong", more));
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_NE(result.error.find(words), std::string::npos) << result.error;
  }
}

// Full training whose masters and optimizer state are in host memory.
TEST_F(Pretrain, OffloadedOptimizerStateHasTheBitsOfTheDevices) {
  const std::string offload = "parallel.offload=optimizer";
  const auto expect_same = [&](const std::string& name, const std::string& other) {
    EXPECT_EQ(curve(other), curve(name)) << other;
    const auto model = [&](const std::string& of) {
      return read_file(run(of) / "model" / "model.safetensors", uint64_t{1} << 30);
    };
    EXPECT_EQ(model(other), model(name)) << other;
  };
  const auto on_device = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"device=sim32", "precision=bf16", "batch.global=1", "data.sequence_length=16", "steps=2"});
    trains(name, more);
  };
  const std::vector<std::string> lion = {"optimizer.name=lion", "optimizer.state_dtype=bf16"};
  ASSERT_NO_FATAL_FAILURE(on_device("lion", lion));
  ASSERT_NO_FATAL_FAILURE(on_device("lion-offloaded", {lion[0], lion[1], offload}));
  expect_same("lion", "lion-offloaded");

  const std::string bitwise = "determinism=bitwise";
  ASSERT_NO_FATAL_FAILURE(on_device("adamw", {bitwise}));
  ASSERT_NO_FATAL_FAILURE(on_device("offloaded", {bitwise, "checkpoint.every=1", offload}));
  expect_same("adamw", "offloaded");
  // The second step again, from the checkpoint of the first, with the state in the device's memory and in the host's.
  for (const std::string& memory : {std::string("parallel.offload=none"), offload}) {
    fs::remove_all(run("offloaded") / "checkpoints" / "step-2");
    ASSERT_NO_FATAL_FAILURE(on_device("offloaded", {bitwise, "checkpoint.every=1", memory, "--resume"}));
    expect_same("adamw", "offloaded");
  }
}

// Each rank has its share of the state in host memory, and updates it there.
TEST_F(Pretrain, OffloadedSharesOfTheOptimizerStateHaveTheBitsOfOneRank) {
  const auto trains_with = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"device=sim32", "precision=bf16", "batch.global=2", "batch.micro=1", "steps=2",
                             "data.sequence_length=16", "determinism=bitwise"});
    trains(name, more);
  };
  const auto model = [&](const std::string& of) {
    return read_file(run(of) / "model" / "model.safetensors", uint64_t{1} << 30);
  };
  ASSERT_NO_FATAL_FAILURE(trains_with("one", {}));
  const std::vector<std::pair<std::string, std::vector<std::string>>> layouts = {
      {"state", {"parallel.dp=2", "parallel.zero=1", "threads=2"}},
      {"weights", {"parallel.dp=2", "parallel.zero=3", "threads=2"}},
      {"stages", {"parallel.pp=2", "threads=2"}}};
  for (const auto& [name, settings] : layouts) {
    std::vector<std::string> more = settings;
    more.emplace_back("parallel.offload=optimizer");
    ASSERT_NO_FATAL_FAILURE(trains_with(name, more));
    EXPECT_EQ(curve(name), curve("one")) << name;
    EXPECT_EQ(model(name), model("one")) << name;
  }
}

TEST_F(Pretrain, OptimizerStateThatCannotBeOffloadedIsRefused) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> refusals = {
      {{"device=cpu"}, "its state is in host memory already"},
      {{"init=pretrained", "adapter={rank: 4}"}, "with an adapter"},
      {{"parallel.dp=2", "threads=2"}, "parallel.offload: optimizer with 2 ranks and parallel.zero 0"},
      {{"optimizer.name=muon"}, "with optimizer.name: muon"},
      {{"optimizer.state_dtype=int8"}, "with optimizer.state_dtype: int8"},
      {{"optimizer.master=bf16"}, "with optimizer.master: bf16"},
      {{"precision=fp32"}, "with precision: fp32"}};
  for (const auto& [settings, words] : refusals) {
    std::vector<std::string> more = {"device=sim32", "precision=bf16", "parallel.offload=optimizer"};
    more.insert(more.end(), settings.begin(), settings.end());
    const Result result = program_.run(command("wrong", more));
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_NE(result.error.find("parallel.offload: optimizer"), std::string::npos) << result.error;
    EXPECT_NE(result.error.find(words), std::string::npos) << result.error;
  }
}

// Simulated GPUs with a stand-in for NCCL, which adds floating-point numbers in another order.
TEST_F(Pretrain, ALibraryOfCollectivesHasTheBitsOfHostMemory) {
  const auto model = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"device=sim32", "steps=2", "batch.global=2", "data.sequence_length=32", "threads=4"});
    const Result result = program_.run(command(name, more));
    EXPECT_EQ(result.code, 0) << result.error;
    const bool by_library = result.error.find("exchange gradients and weights by NCCL 2.28.3") != std::string::npos;
    EXPECT_EQ(by_library, std::ranges::find(more, "parallel.collectives=device") != more.end()) << result.error;
    return result.code == 0 ? read_file(run(name) / "model" / "model.safetensors", uint64_t{1} << 30) : "failed";
  };
  setenv("INGOT_NCCL_LIBRARY", fake_nccl, 1);
  const std::string device = "parallel.collectives=device";
  const std::string expected = model("one", {"determinism=bitwise"});
  for (const std::string zero : {"0", "1", "2", "3"}) {
    EXPECT_EQ(model("zero" + zero, {"determinism=bitwise", "parallel.dp=2", "parallel.zero=" + zero, device}), expected)
        << zero;
  }
  const auto parts = [&](const std::string& name, const std::string& how) {
    return model(name, {"determinism=fast", "parallel.tp=2", "parallel.dp=2", "parallel.zero=3", how});
  };
  EXPECT_EQ(parts("tp", device), parts("tp-host", "parallel.collectives=host"));
  const auto tokens = [&](const std::string& name, const std::string& how) {
    return model(name, {"determinism=fast", "parallel.cp=2", "parallel.zero=2", how});
  };
  EXPECT_EQ(tokens("cp", device), tokens("cp-host", "parallel.collectives=host"));
  setenv("INGOT_NCCL_LIBRARY", "/nowhere/libnccl.so", 1);
  program_.refuses_late(command("none", {"device=sim32", "parallel.dp=2", "threads=2", device}), 2,
                        "parallel.collectives: device: rank 0: /nowhere/libnccl.so");
  unsetenv("INGOT_NCCL_LIBRARY");
}

// Each rank stores a share of the weights: random or loaded ones, written as one model, and resumed in other layouts.
TEST_F(Pretrain, SharesOfTheWeightsHaveTheBitsOfOneRank) {
  const auto model = [&](const std::string& name) {
    return read_file(run(name) / "model" / "model.safetensors", uint64_t{1} << 30);
  };
  const std::vector<std::string> plain = {"schedule.name=constant", "determinism=bitwise", "eval.every=2",
                                          "data.eval=" + (program_ / "train.jsonl").string()};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), plain.begin(), plain.end());
    return more;
  };
  ASSERT_NO_FATAL_FAILURE(trains("one", with({})));
  ASSERT_NO_FATAL_FAILURE(
      trains("shared", with({"steps=3", "parallel.dp=4", "parallel.zero=3", "parallel.shard=2", "threads=4"})));
  ASSERT_NO_FATAL_FAILURE(
      trains("shared", with({"steps=4", "parallel.dp=2", "parallel.zero=1", "threads=2", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(trains("shared", with({"parallel.dp=6", "parallel.zero=3", "parallel.shard=3", "threads=6",
                                                 "batch.micro=1", "--resume"})));
  EXPECT_EQ(curve("shared"), curve("one"));
  EXPECT_EQ(model("shared"), model("one"));
  const auto evaluated = [&](const std::string& name) {
    std::map<int64_t, double> losses;  // a resumed run evaluates its last step again
    for (const Json& e : events(name, "eval")) losses[e["step"]] = e["loss"];
    return losses;
  };
  EXPECT_EQ(evaluated("shared").at(6), evaluated("one").at(6));
  const std::vector<std::string> loaded =
      with({"init=pretrained", "model=" + (run("one") / "model").string(), "steps=2"});
  ASSERT_NO_FATAL_FAILURE(trains("continued", loaded));
  std::vector<std::string> more = loaded;
  more.insert(more.end(), {"parallel.dp=2", "parallel.zero=3", "threads=2"});
  ASSERT_NO_FATAL_FAILURE(trains("continued-shared", more));
  EXPECT_EQ(model("continued-shared"), model("continued"));
  // On devices whose memory the host cannot access, alone and beside one of another kind. They are slow: a small model.
  const std::filesystem::path small = program_ / "small-model";
  std::filesystem::copy(std::filesystem::path(source_root) / "recipes/models/tiny", small);
  Json config = Json::parse(read(small / "config.json"));
  config.update({{"hidden_size", 64}, {"head_dim", 16}, {"intermediate_size", 96}, {"num_hidden_layers", 2}});
  write(small / "config.json", config.dump());
  const std::vector<std::string> few = with({"model=" + small.string(), "steps=1", "batch.global=2",
                                             "data.sequence_length=32", "data.eval=[]", "eval.every=0"});
  const auto simulated = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), few.begin(), few.end());
    return trains(name, more);
  };
  ASSERT_NO_FATAL_FAILURE(simulated("sim", {"device=sim32"}));
  ASSERT_NO_FATAL_FAILURE(simulated("sim-shared", {"device=sim32", "parallel.dp=2", "parallel.zero=3", "threads=2"}));
  EXPECT_EQ(model("sim-shared"), model("sim"));
  ASSERT_NO_FATAL_FAILURE(
      simulated("mixed", {"device=cpu,sim32", "determinism=fast", "parallel.dp=2", "parallel.zero=3", "threads=2"}));
  EXPECT_NEAR(curve("mixed").front().first / curve("sim").front().first, 1, 1e-4);
  const Result refused =
      program_.run(command("wrong", {"parallel.dp=2", "parallel.zero=3", "threads=2", "eval.prompts=[a]"}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.error.find("eval.prompts with parallel.zero 3"), std::string::npos) << refused.error;
}

// Layers cut over ranks have the curve of one rank to rounding, and resume in other layouts; the model that rank 0
// writes is the one that they had.
TEST_F(Pretrain, TensorParallelRanksFollowOneRank) {
  const std::vector<std::string> plain = {"schedule.name=constant", "precision=fp32"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), plain.begin(), plain.end());
    return more;
  };
  const auto near = [&](const std::string& name, const std::string& expected) {
    const auto found = curve(name), wanted = curve(expected);
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(found[i].first / wanted[i].first, 1, 1e-4) << name << ", step " << i + 1;
      EXPECT_NEAR(found[i].second / wanted[i].second, 1, 1e-2) << name << ", step " << i + 1;
    }
  };
  ASSERT_NO_FATAL_FAILURE(trains("one", with({})));
  ASSERT_NO_FATAL_FAILURE(trains("cut", with({"steps=2", "parallel.tp=2", "threads=2"})));
  ASSERT_NO_FATAL_FAILURE(
      trains("cut", with({"steps=4", "parallel.tp=2", "parallel.pp=2", "parallel.zero=1", "threads=4", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(
      trains("cut", with({"parallel.tp=2", "parallel.dp=2", "parallel.zero=2", "threads=4", "--resume"})));
  near("cut", "one");
  // The same weights from one rank: no step is left.
  const std::string written = read_file(run("cut") / "model" / "model.safetensors", uint64_t{1} << 30);
  ASSERT_NO_FATAL_FAILURE(trains("cut", with({"--resume"})));
  EXPECT_EQ(read_file(run("cut") / "model" / "model.safetensors", uint64_t{1} << 30), written);

  for (const std::string weights : {"int8", "fp8"}) {
    const auto finetune = [&](const std::string& name, const std::vector<std::string>& more) {
      std::vector<std::string> words = command(name, with(more));
      words.front() = "finetune";
      words.insert(words.end(), {"init=pretrained", "model=" + (run("one") / "model").string(), "weights=" + weights,
                                 "adapter={rank: 4, dropout: 0.1}"});
      const Result result = program_.run(words);
      ASSERT_EQ(result.code, 0) << result.error;
    };
    const std::string whole = "adapter-" + weights, cut = "cut-" + whole;
    ASSERT_NO_FATAL_FAILURE(finetune(whole, {}));
    ASSERT_NO_FATAL_FAILURE(finetune(cut, {"steps=3", "parallel.tp=2", "threads=2"}));
    const fs::path adapter = run(cut) / "adapter" / "adapter_model.safetensors";
    const std::string from_two = read_file(adapter);
    ASSERT_NO_FATAL_FAILURE(finetune(cut, {"steps=3", "parallel.dp=2", "parallel.zero=1", "threads=2", "--resume"}));
    EXPECT_EQ(read_file(adapter), from_two);
    ASSERT_NO_FATAL_FAILURE(finetune(cut, {"parallel.pp=2", "threads=2", "--resume"}));
    near(cut, whole);
  }
}

// Ranks that share the tokens of sequences have the curve of one rank to rounding, and resume in other layouts.
TEST_F(Pretrain, ContextParallelRanksFollowOneRank) {
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"schedule.name=constant", "precision=fp32", "eval.every=6",
                             "data.eval=" + (program_ / "train.jsonl").string()});
    return more;
  };
  ASSERT_NO_FATAL_FAILURE(trains("one", with({})));
  ASSERT_NO_FATAL_FAILURE(trains("shared", with({"steps=2", "parallel.cp=4", "parallel.zero=3", "threads=4"})));
  ASSERT_NO_FATAL_FAILURE(trains("shared", with({"steps=4", "parallel.cp=2", "parallel.dp=2", "parallel.zero=2",
                                                 "parallel.shard=2", "threads=4", "batch.micro=1", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(
      trains("shared", with({"parallel.cp=2", "parallel.pp=2", "parallel.tp=2", "threads=8", "--resume"})));
  const auto found = curve("shared"), wanted = curve("one");
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(found[i].first / wanted[i].first, 1, 1e-4) << "step " << i + 1;
    EXPECT_NEAR(found[i].second / wanted[i].second, 1, 1e-2) << "step " << i + 1;
  }
  const Json one = events("one", "eval").back(), shared = events("shared", "eval").back();
  EXPECT_EQ(shared["tokens"], one["tokens"]);
  EXPECT_NEAR(shared["loss"].get<double>() / one["loss"].get<double>(), 1, 1e-4);
  const std::vector<std::pair<std::vector<std::string>, std::string>> refusals = {
      {{"parallel.cp=3", "threads=3"}, "cannot be divided among 3 context-parallel ranks"},
      {{"parallel.cp=8", "threads=8"}, "8 context-parallel ranks cannot share the 4 heads"},
      {{"parallel.cp=2", "threads=2", "determinism=bitwise"}, "determinism: bitwise with parallel.cp 2"},
      {{"parallel.cp=2", "threads=2", "parallel.zero=3", "eval.prompts=[a]"}, "eval.prompts with parallel.zero 3"}};
  for (const auto& [settings, words] : refusals) {
    const Result result = program_.run(command("wrong", settings));
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_NE(result.error.find(words), std::string::npos) << result.error;
  }
}

// Sums in slices: the bytes of one rank, through checkpoints in other layouts; and a step is replayed by one rank.
TEST_F(Pretrain, RanksHaveTheBytesOfOneRankInSlices) {
  const std::vector<std::string> plain = {"schedule.name=constant", "determinism=bitwise", "parallel.units=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), plain.begin(), plain.end());
    return more;
  };
  const auto model = [&](const std::string& name) {
    return read_file(run(name) / "model" / "model.safetensors", uint64_t{1} << 30);
  };
  ASSERT_NO_FATAL_FAILURE(trains("one", with({})));
  ASSERT_NO_FATAL_FAILURE(trains("cut", with({"steps=2", "parallel.tp=2", "threads=2"})));
  ASSERT_NO_FATAL_FAILURE(
      trains("cut", with({"steps=3", "parallel.dp=3", "parallel.zero=2", "threads=3", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(
      trains("cut", with({"steps=5", "parallel.tp=2", "parallel.pp=2", "parallel.zero=1", "parallel.order=pp-tp-cp-dp",
                          "batch.micro=1", "threads=4", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(trains("cut", with({"parallel.cp=2", "parallel.dp=2", "parallel.order=dp-cp-tp-pp",
                                              "parallel.zero=2", "parallel.shard=2", "threads=4", "--resume"})));
  EXPECT_EQ(curve("cut"), curve("one"));
  EXPECT_EQ(model("cut"), model("one"));
  const Result replayed = program_.run({"replay", run("cut").string(), "--step", "6"});
  EXPECT_EQ(replayed.code, 0) << replayed.error;
  const Result other = program_.run(command("one", {"schedule.name=constant", "determinism=bitwise", "--resume"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.error.find("parallel.units"), std::string::npos) << other.error;

  const auto adapter = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words = command(name, with(more));
    words.front() = "finetune";
    words.insert(words.end(), {"init=pretrained", "model=" + (run("one") / "model").string(), "weights=int8",
                               "adapter={rank: 4, dropout: 0.1}", "steps=3"});
    const Result result = program_.run(words);
    EXPECT_EQ(result.code, 0) << result.error;
    return result.code == 0 ? read_file(run(name) / "adapter" / "adapter_model.safetensors") : "failed";
  };
  EXPECT_EQ(adapter("adapter-cut", {"parallel.tp=2", "parallel.dp=2", "parallel.zero=3", "threads=4"}),
            adapter("adapter-one", {}));
}

// Ranks that share the rows of norms: the bytes of one rank, through checkpoints with and without.
TEST_F(Pretrain, SequenceParallelRanksHaveTheBytesOfOneRank) {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.end(), {"schedule.name=constant", "determinism=bitwise", "parallel.units=2"});
    return more;
  };
  const auto model = [&](const std::string& name) {
    return read_file(run(name) / "model" / "model.safetensors", uint64_t{1} << 30);
  };
  const std::string shared = "parallel.sequence_parallel=true";
  ASSERT_NO_FATAL_FAILURE(trains("one", with({})));
  ASSERT_NO_FATAL_FAILURE(trains("rows", with({"steps=2", "parallel.tp=2", shared, "threads=2"})));
  ASSERT_NO_FATAL_FAILURE(trains("rows", with({"steps=4", "parallel.tp=2", "parallel.pp=2", "parallel.zero=1", shared,
                                               "recompute=full", "batch.micro=1", "threads=4", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(trains("rows", with({"steps=5", "parallel.dp=2", "threads=2", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(
      trains("rows", with({"parallel.tp=2", "parallel.dp=2", "parallel.zero=3", shared, "threads=4", "--resume"})));
  EXPECT_EQ(curve("rows"), curve("one"));
  EXPECT_EQ(model("rows"), model("one"));
  const Result replayed = program_.run({"replay", run("rows").string(), "--step", "6"});
  EXPECT_EQ(replayed.code, 0) << replayed.error;
  program_.refuses(command("wrong", {shared}), 2, "parallel.sequence_parallel with parallel.tp 1");
}

// Without settings, the clock limits what a crash can cost; with checkpoint.every, only steps count.
TEST_F(Pretrain, CheckpointsAreTimedUnlessSetBySteps) {
  ASSERT_NO_FATAL_FAILURE(trains("clock", {"steps=1"}));
  EXPECT_NE(read(run("clock") / "recipe.yaml").find("minutes: 5  #"), std::string::npos);
  EXPECT_NE(read(run("clock") / "recipe.yaml").find("keep: 2  #"), std::string::npos);
  ASSERT_NO_FATAL_FAILURE(trains("steps", {"steps=1", "checkpoint.every=3"}));
  EXPECT_NE(read(run("steps") / "recipe.yaml").find("minutes: 0  #"), std::string::npos);
}

TEST_F(Pretrain, AutomaticMicroBatchIsReportedAndChangesNoResult) {
  for (const char* determinism : {"fast", "bitwise"}) {
    const std::string d = determinism, setting = "determinism=" + d;
    ASSERT_NO_FATAL_FAILURE(trains(d + "-auto", {setting}));
    ASSERT_NO_FATAL_FAILURE(trains(d + "-one", {setting, "batch.micro=1"}));
    EXPECT_EQ(curve(d + "-auto"), curve(d + "-one"));
    EXPECT_EQ(curve(d + "-auto").size(), 6U);
    const Json start = events(d + "-auto", "start").at(0), one = events(d + "-one", "start").at(0);
    for (const Json& step : events(d + "-auto", "step")) EXPECT_GE(step["data_s"], 0);
    EXPECT_EQ(start["batch_micro"], 6);
    EXPECT_EQ(start["batch_micro_reason"], "the whole global batch");
    EXPECT_EQ(one["batch_micro"], 1);
    EXPECT_EQ(one["batch_micro_reason"], "set in the recipe");
    EXPECT_NE(read(run(d + "-auto") / "recipe.yaml").find("micro: 6"), std::string::npos);
  }
}

// The process that runs in the folder, according to its lock; 0 when there is none.
pid_t holder(const fs::path& run) {
  if (!fs::exists(run / "lock")) return 0;
  const std::string lock = read(run / "lock");
  const size_t at = lock.find("\npid ");
  return at == std::string::npos ? 0 : static_cast<pid_t>(std::stol(lock.substr(at + 5)));
}

class Cluster : public Pretrain {
 protected:
  std::vector<std::string> long_run(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = command(name, {"steps=60", "checkpoint.every=5", "batch.global=2"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  bool has(const std::string& name, const std::string& text) const {
    return fs::exists(run(name) / "events.jsonl") && read(run(name) / "events.jsonl").find(text) != std::string::npos;
  }
  // Waits until the run's events contain `text`; the limit of minutes is far above any machine's need.
  void wait_for(Process& process, const std::string& name, const std::string& text) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (!has(name, text)) {
      ASSERT_FALSE(process.wait(std::chrono::milliseconds(5))) << process.result().error;
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "no event holds " << text;
    }
  }
  // Kills the process that runs there as soon as it differs from `former`. Returns its number.
  void kill_holder(Process& process, const std::string& name, pid_t& former) const {
    pid_t pid = 0;
    while ((pid = holder(run(name))) <= 1 || pid == former) {
      ASSERT_FALSE(process.wait(std::chrono::milliseconds(5))) << process.result().error;
    }
    ::kill(pid, SIGKILL);
    former = pid;
  }
  // The supervisor's messages. A busy machine may add others.
  std::vector<std::string> restarts(const std::string& name) const {
    std::vector<std::string> all;
    for (const Json& e : events(name, "warning")) {
      const std::string message = e["message"];
      if (message.starts_with("the run failed")) all.push_back(message);
    }
    return all;
  }
};

TEST_F(Cluster, ASupervisedRunKilledTwiceEqualsOneNeverKilled) {
  ASSERT_EQ(program_.run(long_run("whole", {"steps=120", "checkpoint.every=10"})).code, 0);
  Process process(long_run("killed", {"steps=120", "checkpoint.every=10", "--restarts", "2", "--restart-wait", "0.1"}));
  pid_t victim = 0;
  for (const char* at : {R"({"type":"checkpoint",)", R"({"type":"step","step":31,)"}) {
    ASSERT_NO_FATAL_FAILURE(wait_for(process, "killed", at));
    ASSERT_NO_FATAL_FAILURE(kill_holder(process, "killed", victim));
  }
  ASSERT_EQ(process.wait(std::chrono::minutes(5)), 0) << process.result().error;
  EXPECT_EQ(curve("killed"), curve("whole"));
  const std::vector<std::string> reported = restarts("killed");
  ASSERT_EQ(reported.size(), 2U);
  EXPECT_NE(reported[0].find("signal 9"), std::string::npos) << reported[0];
  EXPECT_NE(reported[0].find("restart 1 of 2 from step "), std::string::npos) << reported[0];
  EXPECT_NE(reported[1].find("restart 2 of 2"), std::string::npos) << reported[1];
  EXPECT_NE(read(run("killed") / "log.txt").find("restart 2 of 2"), std::string::npos);
}

TEST_F(Cluster, RestartsAreBounded) {
  Process process(long_run("bounded", {"steps=100000", "checkpoint.every=0", "checkpoint.minutes=0", "--restarts", "1",
                                       "--restart-wait", "0"}));
  pid_t victim = 0;
  ASSERT_NO_FATAL_FAILURE(wait_for(process, "bounded", R"("step":7,)"));
  ASSERT_NO_FATAL_FAILURE(kill_holder(process, "bounded", victim));
  ASSERT_NO_FATAL_FAILURE(wait_for(process, "bounded", "restart 1 of 1 from its start"));
  ASSERT_NO_FATAL_FAILURE(wait_for(process, "bounded", R"("step":20,)"));
  ASSERT_NO_FATAL_FAILURE(kill_holder(process, "bounded", victim));
  EXPECT_EQ(process.wait(std::chrono::minutes(1)), 137);
  EXPECT_NE(process.result().error.find("1 restarts are used up"), std::string::npos) << process.result().error;
}

TEST_F(Cluster, PermanentErrorsAreNotRetried) {
  for (const auto& [setting, code] : {std::pair("data.train=/nowhere.jsonl", 3),
                                      std::pair("schedule.warmup_steps=99", 2), std::pair("batch.micro=1000000", 0)}) {
    const std::string global = code == 0 ? "batch.global=1000000" : "batch.global=2";
    const Result result =
        program_.run(long_run("never", {setting, global, "data.sequence_length=512", "--restarts", "3"}));
    EXPECT_EQ(result.code, code == 0 ? 4 : code) << result.error;
    EXPECT_EQ(result.error.find("restart"), std::string::npos) << result.error;
  }
  const Result launcher = program_.run(long_run("never", {"--launcher", "mpirun"}));
  EXPECT_EQ(launcher.code, 2) << launcher.error;
}

TEST_F(Cluster, ASupervisedRunDoesNotReadTheSupervisorsInput) {
  write(program_ / "launch.sh", "readlink /proc/self/fd/0 >" + (program_ / "input").string() + "\nexec \"$@\"\n");
  const std::string launcher = "sh " + (program_ / "launch.sh").string();
  const Result result =
      program_.run(long_run("never", {"data.train=/nowhere.jsonl", "--restarts", "1", "--launcher", launcher}),
                   "for the supervisor");
  EXPECT_EQ(result.code, 3) << result.error;
  EXPECT_EQ(read(program_ / "input"), "/dev/null\n");
}

// The signal goes to the supervisor and to the run at once, as schedulers send it: there is one checkpoint and one end.
TEST_F(Cluster, SignalsWriteACheckpointAndEndTheSupervisorToo) {
  auto* const inherited = ::signal(SIGHUP, SIG_DFL);  // the tests themselves may run under nohup
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1}) {
    const std::string name = "signal-" + std::to_string(signal);
    Process process(long_run(name, {"--restarts", "3", "steps=100000", "checkpoint.every=0", "checkpoint.minutes=0"}));
    ASSERT_NO_FATAL_FAILURE(wait_for(process, name, R"("step":4,)"));
    const pid_t child = holder(run(name));
    ASSERT_GT(child, 1);
    process.kill(signal);
    ::kill(child, signal);
    ASSERT_EQ(process.wait(std::chrono::minutes(1)), 130) << process.result().error;
    EXPECT_EQ(events(name, "checkpoint").size(), 1U);
    ASSERT_EQ(events(name, "end").size(), 1U);
    EXPECT_EQ(events(name, "end")[0]["reason"], "stopped");
    EXPECT_EQ(restarts(name).size(), 0U);
    EXPECT_EQ(holder(run(name)), 0) << "the lock was not released";
  }
  ::signal(SIGHUP, inherited);
}

TEST_F(Cluster, ARunWhoseSupervisorDiesStopsWithACheckpoint) {
  Process process(
      long_run("orphan", {"--restarts", "3", "steps=100000", "checkpoint.every=0", "checkpoint.minutes=0"}));
  ASSERT_NO_FATAL_FAILURE(wait_for(process, "orphan", R"("step":4,)"));
  process.kill(SIGKILL);
  for (int i = 0; i < 6000 && !has("orphan", R"({"type":"end")"); ++i) ::usleep(10'000);
  EXPECT_EQ(events("orphan", "checkpoint").size(), 1U);
}

TEST_F(Cluster, ASecondRunInTheSameFolderIsRefused) {
  Process process(long_run("shared", {"steps=100000", "checkpoint.every=0", "checkpoint.minutes=0"}));
  ASSERT_NO_FATAL_FAILURE(wait_for(process, "shared", R"("step":2,)"));
  for (const char* resume : {"--resume", "--resume=fresh"}) {
    const Result second = program_.run(long_run("shared", {"steps=100000", resume}));
    EXPECT_EQ(second.code, 5) << second.error;
    EXPECT_NE(second.error.find("in use by another process: process " + std::to_string(holder(run("shared")))),
              std::string::npos)
        << second.error;
  }
  // Another process has taken the folder over, as after this machine was unreachable: the run ends and says so.
  fs::remove(run("shared") / "lock");
  write(run("shared") / "lock", "host far-away\nplace other/pid:[1]\npid 77\nstarted 5\nsince then\ntoken abc\n");
  ASSERT_EQ(process.wait(std::chrono::minutes(1)), 5) << process.result().error;
  EXPECT_NE(process.result().error.find("another process has taken the lock"), std::string::npos)
      << process.result().error;
}

// Replays a step, also after a bit of the recorded run was changed.
class Replayed : public Pretrain {
 protected:
  // Steps 1 to 7 with checkpoints of 3, 6 and 7.
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(trains("run", {"steps=7", "checkpoint.every=3", "checkpoint.keep=9"}));
  }

  std::string folder() const { return run("run").string(); }
  Json replay(int64_t step, int code, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"replay", folder(), "--step", std::to_string(step), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = program_.run(words);
    EXPECT_EQ(result.code, code) << result.error << result.output;
    SCOPED_TRACE(result.error);
    return json_of(result);
  }
  void refuses(std::vector<std::string> more, int code, const std::string& words) const {
    more.insert(more.begin(), {"replay", folder()});
    const Result result = program_.run(more);
    EXPECT_EQ(result.code, code) << result.error;
    EXPECT_NE(result.error.find(words), std::string::npos) << result.error;
  }
  // Edits the text of a file by `change`.
  void edit(const fs::path& path, const std::function<void(std::string&)>& change) const {
    std::string text = read(path);
    change(text);
    write(path, text);
  }
};

TEST_F(Replayed, StepsAreReproducedBitForBit) {
  const std::string before = read(run("run") / "events.jsonl");
  const Json from_checkpoint = replay(5, 0), from_beginning = replay(2, 0), last = replay(7, 0);
  EXPECT_EQ(from_checkpoint["from"], 3);
  EXPECT_EQ(from_checkpoint["steps"].size(), 2U);
  EXPECT_EQ(from_checkpoint["to_the_bit"], true);
  EXPECT_EQ(from_checkpoint["tensors_that_differ"], nullptr) << "there is no checkpoint of step 5";
  EXPECT_EQ(from_beginning["from"], 0);
  EXPECT_EQ(last["from"], 6);
  EXPECT_EQ(last["tensors_that_differ"], Json::array());
  EXPECT_EQ(replay(6, 0, {"batch.micro=1"})["agrees"], true);
  EXPECT_EQ(read(run("run") / "events.jsonl"), before) << "a replay changed the run";
}

TEST_F(Replayed, AChangedBitOfARecordedLossIsFound) {
  edit(run("run") / "events.jsonl", [](std::string& text) {
    const size_t at = text.find("\"loss\":", text.find(R"({"type":"step","step":5,)")) + 7;
    const double loss = std::stod(text.substr(at));
    text.replace(at, text.find(',', at) - at, Json(std::nextafter(loss, 0)).dump());
  });
  const Json found = replay(5, 3);
  EXPECT_EQ(found["agrees"], false);
  EXPECT_EQ(found["steps"][0]["agrees"], true);
  EXPECT_EQ(found["steps"][1]["agrees"], false);
  EXPECT_EQ(replay(4, 0)["agrees"], true);
}

TEST_F(Replayed, WrongWeightsInACheckpointAreFound) {
  // An intact checkpoint, but of a run with another learning rate.
  ASSERT_NO_FATAL_FAILURE(
      trains("other", {"steps=7", "checkpoint.every=3", "checkpoint.keep=9", "optimizer.lr=1.01e-3"}));
  fs::remove_all(run("run") / "checkpoints/step-6");
  fs::copy(run("other") / "checkpoints/step-6", run("run") / "checkpoints/step-6");
  const Json into = replay(6, 3);  // arrives at other weights, after steps that agree
  EXPECT_EQ(into["steps"].back()["agrees"], true);
  EXPECT_NE(into["tensors_that_differ"], Json::array());
  const Json from = replay(7, 3);  // starts from them
  EXPECT_EQ(from["agrees"], false);
}

TEST_F(Replayed, ADamagedCheckpointIsNamed) {
  for (const auto& entry : fs::directory_iterator(run("run") / "checkpoints/step-3")) {
    if (entry.path().extension() != ".safetensors") continue;
    edit(entry.path(), [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  }
  refuses({"--step", "5"}, 3, "step-3: file");
}

TEST_F(Replayed, OnAnotherKindOfDeviceItAgreesToRounding) {
  edit(run("run") / "events.jsonl", [](std::string& text) {
    // Changes the recorded device of the run.
    const size_t at = text.find(R"("device":"cpu )") + 14;
    text.replace(at, text.find('"', at) - at, "other");
    const size_t loss = text.find("\"loss\":", text.find(R"({"type":"step","step":5,)")) + 7;
    text.replace(loss, text.find(',', loss) - loss, Json(std::stod(text.substr(loss)) * 1.0001).dump());
  });
  const Json found = replay(5, 0);
  EXPECT_EQ(found["to_the_bit"], false);
  EXPECT_GT(found["steps"][1]["allowed"], 0.0001);
  edit(run("run") / "events.jsonl", [](std::string& text) {
    const size_t loss = text.find("\"loss\":", text.find(R"({"type":"step","step":5,)")) + 7;
    text.replace(loss, text.find(',', loss) - loss, Json(std::stod(text.substr(loss)) * 2).dump());
  });
  EXPECT_EQ(replay(5, 3)["agrees"], false);
}

// Steps 8 to 10 by two ranks, 11 and 12 by one.
TEST_F(Replayed, StepsOfFastRanksAgreeToRoundingAndOthersBitForBit) {
  const std::vector<std::string> more = {"checkpoint.every=3", "checkpoint.keep=9", "--resume"};
  const auto can_continue = [&](std::vector<std::string> settings) {
    settings.insert(settings.end(), more.begin(), more.end());
    trains("run", settings);
  };
  ASSERT_NO_FATAL_FAILURE(can_continue({"steps=10", "parallel.dp=2", "threads=2", "device=cpu"}));
  ASSERT_NO_FATAL_FAILURE(can_continue({"steps=12"}));
  EXPECT_EQ(replay(7, 0)["to_the_bit"], true);
  EXPECT_EQ(replay(10, 0)["to_the_bit"], false);
  EXPECT_EQ(replay(12, 0)["to_the_bit"], true);
}

TEST_F(Replayed, StepsThatCannotBeReplayedAreErrors) {
  refuses({"--step", "8"}, 2, "steps 1 to 7");
  program_.refuses({"replay", (program_ / "nowhere").string(), "--step", "1"}, 3, "nowhere");
  refuses({"--step", "5", "data.seed=3"}, 2, "data_seed");
}

}  // namespace
}  // namespace ingot::e2e
