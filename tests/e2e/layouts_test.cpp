// The same runs in other layouts of ranks, with state in host memory, and by other transports: the bytes of one rank,
// or its curve to rounding.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "base/file.h"
#include "tests/e2e/pretrain.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

// The shape of `model` as a mixture of four experts, with other sizes, into a folder.
fs::path write_mixture(const fs::path& folder, const fs::path& model, const Json& sizes = Json::object()) {
  fs::copy(model, folder);
  Json config = Json::parse(read_file(folder / "config.json", 1 << 20));
  config["model_type"] = "mixtral";
  config["architectures"] = {"MixtralForCausalLM"};
  config["intermediate_size"] = 64;
  config["num_local_experts"] = 4;
  config["num_experts_per_tok"] = 2;
  config.update(sizes);
  write(folder / "config.json", config.dump());
  return folder;
}

// Ranks without any adapter: of three, which share the optimizer's state, and the lower stage of a pipeline.
TEST_F(Pretrain, AdaptersHaveTheSameBytesInEveryLayout) {
  ASSERT_NO_FATAL_FAILURE(trains("base", {"steps=1"}));
  ASSERT_NO_FATAL_FAILURE(trains("narrow-base", {"steps=1", "model=" + narrow_model()}));
  std::string base = "base";
  const auto adapter = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words = command(name, more);
    words.front() = "finetune";
    words.insert(words.end(), {"init=pretrained", "model=" + (run(base) / "model").string(), "determinism=bitwise"});
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
  base = "narrow-base";
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
    more.insert(more.end(), {"model=" + narrow_model(), "device=sim32", "precision=bf16", "batch.global=1",
                             "data.sequence_length=16", "steps=2"});
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
    more.insert(more.end(), {"model=" + narrow_model(), "device=sim32", "precision=bf16", "batch.global=2",
                             "batch.micro=1", "steps=2", "data.sequence_length=16", "determinism=bitwise"});
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
    more.insert(more.begin(), {"model=" + narrow_model(), "device=sim32", "steps=2", "batch.global=2",
                               "data.sequence_length=32", "threads=4"});  // of two equal settings the last one counts
    const Result result = program_.run(command(name, more));
    EXPECT_EQ(result.code, 0) << result.error;
    const bool by_library = result.error.find("by NCCL 2.28.3") != std::string::npos;
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
  for (const std::string type : {"a2a", "allgather", "p2p"}) {
    const auto tokens = [&](const std::string& name, const std::string& how) {
      return model(name + type, {"determinism=fast", "parallel.cp=2", "parallel.cp_comm_type=" + type,
                                 type == "p2p" ? "parallel.zero=3" : "parallel.zero=2", how});
    };
    EXPECT_EQ(tokens("cp-", device), tokens("cp-host-", "parallel.collectives=host")) << type;
  }
  // Stages, whose messages go from device to device: the bytes of one rank.
  const auto stages = [&](const std::string& schedule, std::vector<std::string> more) {
    more.insert(more.end(), {"determinism=bitwise", "batch.micro=1", "parallel.schedule=" + schedule, device});
    return model(schedule + std::to_string(more.size()), more);
  };
  for (const std::string schedule : {"1f1b", "interleaved", "zb_v"})
    EXPECT_EQ(stages(schedule, {"parallel.pp=2"}), expected) << schedule;
  const fs::path deep = program_ / "deep";  // two layers for each of three stages
  fs::copy(narrow_model(), deep);
  Json config = Json::parse(read(deep / "config.json"));
  config["num_hidden_layers"] = 6;
  write(deep / "config.json", config.dump());
  const auto deep_stages = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"model=" + deep.string(), "determinism=bitwise", "steps=1", "batch.global=3",
                             "batch.micro=1", "threads=3"});
    return model(name, more);
  };
  EXPECT_EQ(deep_stages("deep-stages", {"parallel.pp=3", "parallel.schedule=interleaved", device}),
            deep_stages("deep-one", {}));
  const std::vector<std::string> offloaded = {"parallel.dp=2", "parallel.zero=1", "parallel.offload=optimizer"};
  EXPECT_EQ(stages("1f1b", {"parallel.pp=2", offloaded[0], offloaded[1], offloaded[2]}), expected);
  EXPECT_EQ(model("offloaded", {"determinism=bitwise", offloaded[0], offloaded[1], offloaded[2], device}), expected);
  const auto cut_stages = [&](const std::string& name, const std::string& how) {
    return model(name, {"determinism=fast", "parallel.tp=2", "parallel.pp=2", "parallel.dp=2", "parallel.zero=3",
                        "batch.micro=1", "batch.global=4", "device=sim64", "threads=8", how});
  };
  EXPECT_EQ(cut_stages("stages", device), cut_stages("stages-host", "parallel.collectives=host"));
  const std::string mixture =
      "model=" + write_mixture(program_ / "mixture", narrow_model(), {{"num_hidden_layers", 2}}).string();
  const auto experts = [&](const std::string& name, const std::string& how) {
    return model(name, {mixture, "determinism=bitwise", "parallel.dp=4", "parallel.ep=2", "parallel.zero=3", how,
                        "steps=1", "batch.global=4"});
  };
  EXPECT_EQ(experts("ep", device), experts("ep-host", "parallel.collectives=host"));
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
  ASSERT_NO_FATAL_FAILURE(trains("shared", with({"steps=4", "parallel.dp=2", "parallel.zero=1", "parallel.bucket_mib=1",
                                                 "threads=2", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(trains("shared", with({"steps=5", "parallel.dp=2", "parallel.pp=2", "parallel.zero=3",
                                                 "parallel.schedule=zb_v", "batch.micro=1", "threads=4", "--resume"})));
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
  // On devices whose memory the host cannot access, alone and beside one of another kind.
  std::vector<std::string> few = with({"model=" + narrow_model(), "steps=1", "batch.global=2"});
  few.insert(few.end(), {"data.sequence_length=32", "data.eval=[]", "eval.every=0"});
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

// Two steps of three, each with three micro-batches on each rank.
TEST_F(Pretrain, RanksWriteTracesOfTheFirstSteps) {
  ASSERT_NO_FATAL_FAILURE(
      trains("traced", {"steps=3", "parallel.dp=2", "parallel.zero=3", "batch.micro=1", "threads=2", "log.trace=2"}));
  for (const int rank : {0, 1}) {
    std::map<std::string, int> counts;
    const Json trace = Json::parse(read_file(run("traced") / "trace" / fmt::format("rank-{}.json", rank)));
    for (const Json& event : trace["traceEvents"]) {
      EXPECT_EQ(event["pid"], rank);
      if (event["ph"] == "X") ++counts[event["name"]];
    }
    for (const char* name : {"forward -1", "forward 0", "forward 4", "backward 3", "backward -1", "reduce 0"})
      EXPECT_EQ(counts[name], 6) << name;
    EXPECT_EQ(counts["gather 1"], 8);  // forward in the first micro-batch, and backward in each
  }
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
  ASSERT_NO_FATAL_FAILURE(trains("shared", with({"steps=3", "parallel.cp=4", "parallel.cp_comm_type=p2p",
                                                 "parallel.zero=1", "threads=4", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(trains("shared", with({"steps=4", "parallel.cp=2", "parallel.dp=2", "parallel.zero=2",
                                                 "parallel.shard=2", "threads=4", "batch.micro=1", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(
      trains("shared", with({"steps=5", "parallel.cp=2", "parallel.pp=2", "parallel.tp=2", "threads=8", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(trains("shared", with({"parallel.cp=4", "parallel.cp_comm_type=allgather", "parallel.zero=3",
                                                 "threads=4", "--resume"})));
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

// A mixture whose experts are divided: the bytes of one rank, through checkpoints in other layouts; and an adapter.
TEST_F(Pretrain, ExpertParallelRanksHaveTheBytesOfOneRank) {
  const fs::path mixture = write_mixture(program_ / "mixture", fs::path(source_root) / "recipes" / "models" / "tiny");
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"schedule.name=constant", "determinism=bitwise", "model=" + mixture.string(),
                             "data.eval=" + (program_ / "train.jsonl").string()});
    return more;
  };
  const auto model = [&](const std::string& name) {
    return read_file(run(name) / "model" / "model.safetensors", uint64_t{1} << 30);
  };
  ASSERT_NO_FATAL_FAILURE(trains("one", with({})));
  ASSERT_NO_FATAL_FAILURE(trains("divided", with({"steps=2", "parallel.dp=2", "parallel.ep=2", "threads=2"})));
  // Four ranks, of which some have no second sequence, and then none have experts of their own.
  ASSERT_NO_FATAL_FAILURE(trains("divided", with({"steps=3", "parallel.dp=4", "parallel.ep=2", "parallel.zero=2",
                                                  "batch.micro=1", "threads=4", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(
      trains("divided", with({"steps=4", "parallel.dp=3", "parallel.zero=1", "threads=3", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(trains("divided", with({"steps=5", "parallel.dp=4", "parallel.ep=2", "parallel.zero=3",
                                                  "batch.micro=1", "threads=4", "--resume"})));
  ASSERT_NO_FATAL_FAILURE(trains("divided", with({"parallel.dp=4", "parallel.ep=4", "parallel.zero=1", "parallel.pp=2",
                                                  "batch.micro=1", "threads=8", "--resume"})));
  EXPECT_EQ(curve("divided"), curve("one"));
  EXPECT_EQ(model("divided"), model("one"));
  EXPECT_EQ(events("divided", "eval").back()["loss"], events("one", "eval").back()["loss"]);
  // The model that ranks with shares of the experts write, and experts that one rank of a shard group has alone.
  ASSERT_NO_FATAL_FAILURE(
      trains("shares", with({"parallel.dp=4", "parallel.ep=2", "parallel.zero=3", "batch.micro=1", "threads=4"})));
  EXPECT_EQ(model("shares"), model("one"));
  const std::vector<std::string> loaded = {"init=pretrained", "model=" + (run("one") / "model").string(), "steps=2"};
  const auto continued = [&](const std::string& name, std::vector<std::string> more) {
    more = with(more);
    more.insert(more.end(), loaded.begin(), loaded.end());
    trains(name, more);
  };
  ASSERT_NO_FATAL_FAILURE(continued("continued", {}));
  ASSERT_NO_FATAL_FAILURE(continued("continued-shares", {"parallel.dp=4", "parallel.ep=2", "parallel.zero=3",
                                                         "parallel.shard=2", "batch.micro=1", "threads=4"}));
  EXPECT_EQ(model("continued-shares"), model("continued"));

  const auto adapter = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words = command(name, with(more));
    words.front() = "finetune";
    words.insert(words.end(), {"init=pretrained", "model=" + (run("one") / "model").string(),
                               "adapter={rank: 4, dropout: 0.1}", "steps=2"});
    const Result result = program_.run(words);
    EXPECT_EQ(result.code, 0) << result.error;
    return result.code == 0 ? read_file(run(name) / "adapter" / "adapter_model.safetensors", uint64_t{1} << 30)
                            : "failed";
  };
  const std::string expected = adapter("adapter-one", {});
  EXPECT_EQ(adapter("adapter", {"parallel.dp=2", "parallel.ep=2", "parallel.zero=1", "threads=2"}), expected);
  const std::vector<std::string> shares = {"parallel.dp=4", "parallel.ep=2", "parallel.zero=3", "batch.micro=1",
                                           "threads=4"};
  EXPECT_EQ(adapter("adapter-shares", shares), expected);
  for (const std::string weights : {"int8", "fp8"}) {
    std::vector<std::string> more = shares;
    more.push_back("weights=" + weights);
    EXPECT_EQ(adapter(weights + "-shares", more), adapter(weights + "-one", {more.back()})) << weights;
  }
  const std::vector<std::pair<std::vector<std::string>, std::string>> refusals = {
      {{"parallel.ep=2"}, "parallel.ep 2 does not divide the 1 ranks of parallel.dp x parallel.cp"},
      {{"parallel.dp=3", "parallel.ep=3", "threads=3"}, "4 experts cannot be divided among ep 3 ranks"}};
  for (const auto& [settings, words] : refusals) {
    const Result result = program_.run(command("wrong", with(settings)));
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_NE(result.error.find(words), std::string::npos) << result.error;
  }
  const Result dense = program_.run(command("wrong", {"parallel.dp=2", "parallel.ep=2", "threads=2"}));
  EXPECT_EQ(dense.code, 2);
  EXPECT_NE(dense.error.find("ep is 2, but the model has no experts"), std::string::npos) << dense.error;
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

}  // namespace
}  // namespace ingot::e2e
