// ingot data: writing a Megatron data set, inspecting it, the order in which a recipe trains on it, and training.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>

#include "tests/e2e/program.h"
#include "tests/storage/s3_server.h"

namespace ingot::e2e {
namespace {

class Data : public testing::Test {
 protected:
  Data() : model_(make_text_model(program_, false)) {
    std::string lines;
    for (int i = 0; i < 30; ++i) {
      lines += "{\"text\": \"Document " + std::to_string(i) + " speaks of " + std::to_string(i * i) + ".\"}\n";
    }
    write(program_ / "text.jsonl", lines);
    const Json made = program_.report(
        {"data", "tokenize", (program_ / "text.jsonl").string(), "--model", model_, "--out", prefix(), "--quiet"});
    EXPECT_EQ(made.at("documents"), 30);
    tokens_ = made.at("tokens");
  }

  std::string prefix() const { return (program_ / "text").string(); }
  std::string recipe(const std::string& data, const std::string& more = "") const {
    const std::filesystem::path path = program_ / "recipe.yaml";
    write(path, "name: run\nmodel: " + model_ + "\ninit: random\nsteps: 12\nbatch: {global: 4}\nthreads: 1\nrun_dir: " +
                    (program_ / "runs").string() + "\ndata: {order: " + order_ + ", seed: 5, sequence_length: 16, " +
                    data + "}\n" + more);
    return path.string();
  }

  // A run that is stopped and resumed reaches the last loss of one that is not, and its log contains `word`.
  void can_continue(const std::string& path, const char* word) {
    const auto train = [&](const std::string& name, std::vector<std::string> more) {
      more.insert(more.begin(), {"pretrain", path, "name=" + name, "schedule.name=constant", "--quiet"});
      const Result result = program_.run(more);
      EXPECT_EQ(result.code, 0) << result.error;
      EXPECT_NE(result.error.find(word), std::string::npos) << result.error;
    };
    train("straight", {});
    train("part", {"steps=11"});
    train("part", {"--resume"});
    const auto loss = [&](const std::string& name) {
      Json last;
      std::istringstream events(read(program_ / ("runs/" + name + "/events.jsonl")));
      for (std::string line; std::getline(events, line);) {
        const Json event = Json::parse(line);
        if (event.at("type") == "step") last = event;
      }
      EXPECT_EQ(last.at("step"), 12);
      return last.at("loss");
    };
    EXPECT_EQ(loss("part"), loss("straight"));
  }

  Program program_;
  std::string model_;
  std::string order_ = "megatron";
  int64_t tokens_ = 0;
};

TEST_F(Data, TokenizedDataCanBeInspected) {
  const Json found = program_.report({"data", "inspect", prefix() + ".idx", "--model", model_});
  EXPECT_EQ(found.at("format"), "megatron");
  EXPECT_EQ(found.at("dtype"), "uint16");
  EXPECT_EQ(found.at("documents"), 30);
  EXPECT_EQ(found.at("tokens"), tokens_);
  EXPECT_NE(found.at("first").at(0).get<std::string>().find("Document 0 speaks of 0."), std::string::npos);
  const Json text = program_.report({"data", "inspect", (program_ / "text.jsonl").string()});
  EXPECT_EQ(text.at("format"), "text");
  EXPECT_EQ(text.at("documents"), 30);
  program_.refuses({"data", "tokenize", (program_ / "text.jsonl").string(), "--model", model_, "--output", prefix()}, 2,
                   "already exists");
}

TEST_F(Data, TheOrderOfStepsIsTheShuffleIndex) {
  const std::string path = recipe("train: " + prefix());
  const Json indices = program_.report({"data", "order", path, "--indices"});
  const Json& source = indices.at("sources").at(0);
  EXPECT_EQ(source.at("shuffle_index").size() + 1, source.at("sample_index").size());
  const Json steps = program_.report({"data", "order", path, "--from-step", "9"}).at("steps");
  ASSERT_EQ(steps.size(), 3U);
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(steps[s].at("step"), 9 + s);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(steps[s]["samples"][i], source["shuffle_index"][(9 + s) * 4 + i]);
  }
  const Result line = program_.run({"data", "order", path, "--from-step", "11"});
  EXPECT_EQ(Json::parse(line.output), steps[2]);
  program_.refuses({"data", "order", path, "--from-step", "12"}, 2, "outside the run's steps");
  program_.refuses({"data", "order", path, "--epoch", "0"}, 2, "megatron, which shuffles");
  program_.refuses({"data", "order", path, "data.order=ingot", "--indices"}, 2, "--indices");
}

TEST_F(Data, IngotsOrderVisitsEverySampleOncePerEpoch) {
  const std::string path = recipe("train: " + (program_ / "text.jsonl").string());
  const Json first = program_.report({"data", "order", path, "data.order=ingot", "--epoch", "0"}).at("steps");
  const Json second = program_.report({"data", "order", path, "data.order=ingot", "--epoch", "1"}).at("steps");
  EXPECT_EQ(second[0].at("step"), first.size());
  program_.refuses({"data", "order", path}, 2, "is not a Megatron data set");
}

TEST_F(Data, ARunResumesInsideAnEpoch) {
  can_continue(recipe("train: " + prefix() + ", split: \"80,20\"", "checkpoint: {every: 5}\n"), "held-out data");
}

TEST_F(Data, ARunOnMdsShardsResumesInsideAnEpoch) {
  const std::string folder = (program_ / "shards").string();
  const Json made = program_.report({"data", "mds", (program_ / "text.jsonl").string(), "--model", model_, "--length",
                                     "16", "--compression", "zstd", "--hashes", "xxh64", "--out", folder, "--quiet"});
  const int64_t samples = made.at("samples");
  EXPECT_EQ(samples, tokens_ / 16);
  EXPECT_EQ(program_.report({"data", "inspect", folder}).at("documents"), samples);
  order_ = "streaming";
  const std::string path = recipe("train: " + folder + ", streaming: {shuffle: true}", "checkpoint: {every: 5}\n");
  can_continue(path, "training data");
  // No sample occurs twice in an epoch of complete steps.
  const Json epoch = program_.report({"data", "order", path, "--epoch", "0"});
  std::vector<int64_t> seen;
  for (const Json& step : epoch.at("steps")) {
    for (const Json& sample : step.at("samples")) seen.push_back(sample);
  }
  EXPECT_EQ(std::ssize(seen), samples / 4 * 4);
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  EXPECT_EQ(std::ssize(seen), samples / 4 * 4);
}

// One of two sources is too small for a validation split: only the other is evaluated, and the log says so. When both
// are too small, there is no evaluation, and the log says that, too.
TEST_F(Data, ASourceTooSmallForAValidationSplitIsNamed) {
  const std::string small = (program_ / "small").string();
  write(program_ / "small.jsonl", "{\"text\": \"Only a few words here, no more than one sequence of it.\"}\n");
  program_.report(
      {"data", "tokenize", (program_ / "small.jsonl").string(), "--model", model_, "--output", small, "--quiet"});
  const std::string both = recipe("train: [" + prefix() + ", " + small + "], split: \"80,20\"");
  const Result one = program_.run({"pretrain", both, "steps=1", "batch.global=1", "--quiet"});
  EXPECT_EQ(one.code, 0) << one.error;
  EXPECT_NE(one.error.find(small + ": the share that data.split 80,20 holds out is shorter"), std::string::npos)
      << one.error;
  EXPECT_NE(one.error.find("held-out data: "), std::string::npos) << one.error;
  const Result none = program_.run({"pretrain", recipe("train: " + small + ", split: \"80,20\""), "name=none",
                                    "steps=1", "batch.global=1", "--quiet"});
  EXPECT_EQ(none.code, 0) << none.error;
  EXPECT_NE(none.error.find("will not be evaluated"), std::string::npos) << none.error;
}

// Weights of held-out data give the repetitions of each source, whatever the order of the training data.
TEST_F(Data, HeldOutDataIsWeightedInEveryOrder) {
  const std::string folder = (program_ / "shards").string(), text = (program_ / "text.jsonl").string();
  program_.report({"data", "mds", text, "--model", model_, "--length", "16", "--out", folder, "--quiet"});
  order_ = "streaming";
  const auto tokens = [&](const std::string& name, const std::string& weight) {
    const std::string path = recipe("train: " + folder + ", packing: false, eval: [{path: " + text + weight + "}]");
    const Result result = program_.run({"pretrain", path, "name=" + name, "steps=1", "--quiet"});
    EXPECT_EQ(result.code, 0) << result.error;
    std::istringstream events(read(program_ / ("runs/" + name + "/events.jsonl")));
    int64_t number = 0;
    for (std::string line; std::getline(events, line);) {
      const Json event = Json::parse(line);
      if (event.at("type") == "eval") number = event.at("tokens");
    }
    return number;
  };
  const int64_t once = tokens("once", "");
  EXPECT_GT(once, 0);
  EXPECT_EQ(tokens("twice", ", weight: 2"), 2 * once);
}

// A row of token ids outside the model's vocabulary is a bad line.
TEST_F(Data, TokensOutsideTheVocabularyAreSkipped) {
  std::string rows("\x93NUMPY\x01\x00\x76\x00", 10);
  rows += "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2), }";
  rows.resize(127, ' ');
  rows += "\n";
  const std::array<int32_t, 4> ids = {1, 2, 3, 1 << 20};
  rows.append(reinterpret_cast<const char*>(ids.data()), sizeof ids);
  const std::string file = (program_ / "rows.npy").string();
  write(file, rows);
  std::vector<std::string> command = {"data",   "mds", file, "--model", model_, "--out", (program_ / "mds").string(),
                                      "--quiet"};
  program_.refuses(command, 3, "not in the vocabulary");
  std::filesystem::remove_all(program_ / "mds");
  command.insert(command.end(), {"--on-error", "skip"});
  const Json made = program_.report(command);
  EXPECT_EQ(made.at("samples"), 1);
  EXPECT_EQ(made.at("bad_lines"), 1);
}

// Packed data give the same order and losses as packing at the start of the run.
TEST_F(Data, PackedDataTrainLikeUnpackedData) {
  const std::string text = (program_ / "text.jsonl").string(), packed = (program_ / "packed").string();
  const Json made = program_.report({"data", "pack", text, "--model", model_, "--length", "64", "--out", packed,
                                     "--compression", "zstd", "--size-limit", "2000", "--quiet"});
  EXPECT_EQ(made.at("documents"), 30);
  EXPECT_EQ(made.at("tokens"), tokens_);
  order_ = "ingot";
  const auto outcome = [&](const std::string& data, const std::string& name) {
    const std::string path = recipe("train: " + data + ", eval: " + data);
    const std::vector<std::string> more = {path, "data.sequence_length=64", "name=" + name};
    std::vector<std::string> train = {"pretrain", "--quiet"};
    train.insert(train.end(), more.begin(), more.end());
    const Result result = program_.run(train);
    EXPECT_EQ(result.code, 0) << result.error;
    Json losses = Json::array();
    std::istringstream events(read(program_ / ("runs/" + name + "/events.jsonl")));
    for (std::string line; std::getline(events, line);) {
      const Json event = Json::parse(line);
      if (event.contains("loss")) losses.push_back(event.at("loss"));
    }
    losses.push_back(program_.report({"data", "order", path, "data.sequence_length=64"}));
    return losses;
  };
  const Json here = outcome(text, "text");
  EXPECT_GT(here.size(), 12U);
  EXPECT_EQ(outcome(packed, "packed"), here);
  // The output of data tokenize has the same documents.
  const Json tokens = program_.report({"data", "pack", prefix(), "--model", model_, "--length", "64", "--out",
                                       (program_ / "tokens").string(), "--quiet"});
  EXPECT_EQ(tokens.at("sequences"), made.at("sequences"));
  program_.refuses({"pretrain", recipe("train: " + packed)}, 2, "is packed in sequences of 64 tokens, not of 16");
  program_.refuses({"pretrain", recipe("train: [" + packed + ", " + text + "]")}, 2, "is packed, but other data");
}

// A run on data in an object store with transient faults equals one on local data.
TEST_F(Data, ARunOnAnObjectStoreEqualsOneOnDisk) {
  S3Server server;
  server.announce();
  const std::string text = (program_ / "text.jsonl").string();
  program_.report({"data", "pack", text, "--model", model_, "--length", "16", "--out", (program_ / "packed").string(),
                   "--size-limit", "1000", "--quiet"});
  program_.report({"data", "mds", text, "--out", (program_ / "shards").string(), "--size-limit", "300", "--quiet"});
  for (const char* folder : {"packed", "shards"}) {
    for (const auto& entry : std::filesystem::directory_iterator(program_ / folder)) {
      server.put("bucket/" + (folder / entry.path().filename()).string(), read(entry.path()));
    }
  }
  for (const char* suffix : {".idx", ".bin"}) server.put(std::string("bucket/text") + suffix, read(prefix() + suffix));
  server.put("bucket/text.jsonl", read(text));
  using Fault = S3Server::Fault;
  server.fault = S3Server::passing([](size_t number) {
    return number % 7 == 1   ? Fault::busy
           : number % 7 == 3 ? Fault::reset
           : number % 7 == 5 ? Fault::truncate
                             : Fault::none;
  });
  const auto inspect = [&](const std::string& path) {
    Json found = program_.report({"data", "inspect", path});
    found.erase("path");
    return found;
  };
  EXPECT_EQ(inspect("s3://bucket/shards"), inspect((program_ / "shards").string()));
  EXPECT_EQ(inspect("s3://bucket/text"), inspect(prefix()));
  EXPECT_EQ(inspect("s3://bucket/text.jsonl"), inspect(text));
  const auto losses = [&](const std::string& order, const std::string& data, const std::string& name) {
    order_ = order;
    const Result result = program_.run({"pretrain", recipe("train: " + data), "steps=3", "name=" + name, "--quiet"});
    EXPECT_EQ(result.code, 0) << result.error;
    Json all = Json::array();
    std::istringstream events(read(program_ / ("runs/" + name + "/events.jsonl")));
    for (std::string line; std::getline(events, line);) {
      const Json event = Json::parse(line);
      if (event.at("type") == "step") all.push_back(event.at("loss"));
    }
    EXPECT_EQ(all.size(), 3U);
    return all;
  };
  EXPECT_EQ(losses("ingot", "s3://bucket/packed", "a"), losses("ingot", (program_ / "packed").string(), "b"));
  EXPECT_EQ(losses("streaming", "s3://bucket/packed", "c"), losses("streaming", (program_ / "packed").string(), "d"));
  EXPECT_EQ(losses("megatron", "s3://bucket/text", "e"), losses("megatron", prefix(), "f"));
  EXPECT_EQ(losses("ingot", "s3://bucket/shards", "g"), losses("ingot", text, "h"));
  EXPECT_EQ(server.problem(), "");
  program_.refuses({"pretrain", recipe("train: s3://bucket/gone.jsonl")}, 3, "s3://bucket/gone.jsonl");
  ::setenv("AWS_SECRET_ACCESS_KEY", "wrong", 1);
  program_.refuses({"data", "inspect", "s3://bucket/text.jsonl"}, 5, "403");
}

// The meaning of weights in StreamingDataset: repetitions, a number of samples, or a proportion.
TEST_F(Data, StreamWeightsMayBeRepetitionsSamplesOrProportions) {
  const auto shards = [&](const std::string& name) {
    const std::string folder = (program_ / name).string();
    program_.report({"data", "mds", (program_ / "text.jsonl").string(), "--out", folder, "--quiet"});
    return folder;
  };
  const std::string a = shards("a"), b = shards("b");
  order_ = "streaming";
  const auto from_a = [&](const std::string& weights, const std::string& one, const std::string& other) {
    const std::string path = recipe("packing: false, train: [{path: " + a + ", weight: " + one + "}, {path: " + b +
                                    ", weight: " + other + "}], streaming: {shuffle: true, weights: " + weights + "}");
    const Json steps = program_.report({"data", "order", path, "batch.global=1", "--epoch", "0"}).at("steps");
    int64_t first = 0;
    for (const Json& step : steps) first += step["samples"][0] < 30 ? 1 : 0;
    return std::pair(first, std::ssize(steps));
  };
  EXPECT_EQ(from_a("repeat", "2", "1"), std::pair(int64_t{60}, int64_t{90}));
  EXPECT_EQ(from_a("choose", "7", "40"), std::pair(int64_t{7}, int64_t{47}));
  EXPECT_EQ(from_a("proportion", "3", "1"), std::pair(int64_t{45}, int64_t{60}));
  program_.refuses({"data", "order", recipe("train: " + a), "--nodes", "4294967296", "--ranks", "4294967296"}, 2,
                   "--nodes 4294967296 --ranks 4294967296");
  program_.refuses({"data", "order", recipe("train: [{path: " + a + ", weight: 1.5}], streaming: {weights: choose}")},
                   2, "weight 1.5 is not a whole number");
}

TEST_F(Data, ConflictingSettingsAreRefused) {
  const std::string text = (program_ / "text.jsonl").string();
  program_.refuses({"pretrain", recipe("train: " + prefix() + ", eval: [" + text + ", " + prefix() + "]")}, 2,
                   "but data.eval also has files of other formats");
  program_.refuses({"pretrain", recipe("train: " + prefix()), "steps=900000000000000", "batch.global=1000000"}, 2,
                   "exceed the largest supported number of samples");
  program_.refuses({"data", "order", recipe("train: " + text), "data.order=ingot", "--epoch", "9223372036854775000"}, 2,
                   "--epoch 9223372036854775000 is too large");
  program_.refuses({"data", "pack", text, "--model", (program_ / "text-model").string(), "--length",
                    "9223372036854775807", "--out", (program_ / "packed").string()},
                   2, "sequence_length is 9223372036854775807");
  program_.refuses({"pretrain", recipe("train: " + prefix() + ", packing: false")}, 2, "packing");
  program_.refuses({"pretrain", recipe("train: " + prefix() + ", eval: a.jsonl, split: \"9,1\"")}, 2, "data.split");
  program_.refuses({"pretrain", recipe("train: " + prefix()), "data.order=ingot"}, 3, "is a Megatron data set");
  program_.refuses({"pretrain", recipe("train: [{path: " + prefix() + ", weight: 1}, " + prefix() + "]")}, 2,
                   "has no weight");
}

}  // namespace
}  // namespace ingot::e2e
