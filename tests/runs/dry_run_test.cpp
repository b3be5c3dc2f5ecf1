// The plan that a dry run prints, of layouts that are not started.
#include "runs/dry_run.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/cpu_list.h"
#include "base/error.h"
#include "base/file.h"
#include "tests/base/scratch.h"
#include "tests/locations.h"
#include "tests/train/run_files.h"

namespace ingot::runs {
namespace {

class DryRunTest : public testing::Test {
 protected:
  std::string text(const std::vector<std::string>& more, std::optional<int64_t> rank = {},
                   const std::optional<std::string>& machine = {}) const {
    const std::filesystem::path path = scratch_ / "recipe.yaml";
    std::ofstream(path) << "name: run\nmodel: " << source_root << "/recipes/models/tiny\ninit: random\nsteps: 5\n"
                        << "data: {sequence_length: 32}\nbatch: {global: 400}\ndevice: cpu\n"
                        << "checkpoint: {minutes: 0}\n";
    std::string printed;
    dry_run(train::read_recipe(path, more), rank, machine, [&](std::string_view part) { printed += part; });
    return printed;
  }
  // From the first table on.
  std::string tables(const std::vector<std::string>& more, std::optional<int64_t> rank = {}) const {
    const std::string all = text(more, rank);
    return all.substr(all.find("\n# memory"));
  }
  static int count(const std::string& text, const std::string& words) {
    int found = 0;
    for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++found;
    return found;
  }

  Scratch scratch_;
};

TEST_F(DryRunTest, ListsRanksWithEqualMemoryOnce) {
  const std::string one = tables({});
  EXPECT_EQ(count(one, "  total"), 1);
  EXPECT_EQ(count(one, "rank"), 0) << one;
  const std::string four = tables({"parallel.dp=2", "parallel.pp=2"});
  EXPECT_EQ(count(four, "\nranks 0 to 1\n"), 1) << four;
  EXPECT_EQ(count(four, "\nranks 2 to 3\n"), 1) << four;
  EXPECT_EQ(count(four, "  total"), 2) << four;
  // Shares of the optimizer's state differ.
  const std::string sharded = tables({"parallel.dp=3", "parallel.zero=1"});
  EXPECT_GE(count(sharded, "  total"), 2) << sharded;
}

TEST_F(DryRunTest, PlansMoreRanksThanTheMachineCouldRun) {
  const std::string many = tables({"parallel.dp=100", "parallel.pp=4"});
  EXPECT_EQ(count(many, "  total"), 4) << many;
  EXPECT_EQ(count(many, "ranks 300 to 399, as for the first of them"), 1) << many;
  EXPECT_EQ(count(many, "a rank, with all 400 on this machine"), 1) << many;
  const std::string alone = tables({"parallel.dp=100", "parallel.pp=4"}, 342);
  EXPECT_EQ(count(alone, "  total"), 1) << alone;
  const auto table_under = [](const std::string& text, const std::string& heading) {
    const size_t begin = text.find(heading) + heading.size();
    return text.substr(begin, text.find("  total", begin) - begin);
  };
  EXPECT_EQ(table_under(alone, "rank 342\n"), table_under(many, "ranks 300 to 399, as for the first of them\n"));
}

TEST_F(DryRunTest, SaysWhatAStepExchanges) {
  EXPECT_EQ(count(tables({}), "communication"), 0);
  // 200 sequences of 32 tokens of 192 features in bf16 cross the two stages in each direction.
  const std::string stages = tables({"parallel.dp=2", "parallel.pp=2", "batch.micro=1"}, 0);
  EXPECT_EQ(count(stages, "pp send                 2.34 MiB in 200 of at most 12 KiB"), 1) << stages;
  EXPECT_EQ(count(stages, "dp all-reduce"), 1) << stages;
  const std::string groups = tables({"parallel.dp=4", "parallel.shard=2", "parallel.zero=3"}, 0);
  for (const char* kind : {"dp reduce-scatter", "dp all-gather", "replicas all-reduce"})
    EXPECT_EQ(count(groups, kind), 1) << groups;
  EXPECT_EQ(count(tables({"parallel.cp=2"}, 0), "cp all-to-all"), 1);
  const std::string gathered = tables({"parallel.cp=2", "parallel.cp_comm_type=allgather"}, 0);
  EXPECT_EQ(count(gathered, "cp all-to-all"), 0) << gathered;
  for (const char* kind : {"cp reduce-scatter", "cp all-gather"}) EXPECT_EQ(count(gathered, kind), 1) << gathered;
  const std::string simulated =
      tables({"device=sim64", "threads=2", "parallel.cp=2", "parallel.cp_comm_type=allgather"}, 0);
  for (const char* kind : {"cp reduce-scatter", "cp all-gather"}) EXPECT_EQ(count(simulated, kind), 1) << simulated;
  for (const char* device : {"cpu", "sim64"}) {
    const std::string ring =
        tables({std::string("device=") + device, "threads=2", "parallel.cp=2", "parallel.cp_comm_type=p2p"}, 0);
    EXPECT_EQ(count(ring, "cp send"), 1) << ring;
    for (const char* kind : {"cp all-to-all", "cp all-gather"}) EXPECT_EQ(count(ring, kind), 0) << ring;
  }
}

// As the run would be: threads are those of affinity's CPUs, and too few are refused.
TEST_F(DryRunTest, SharesThreadsLikeARun) {
  const std::string cpu = std::to_string(usable_cpus().front());
  const auto threads_of = [](const std::string& text) { return text.substr(text.find("\nthreads:") + 1, 11); };
  EXPECT_EQ(threads_of(text({"threads=auto", "affinity=" + cpu})), "threads: 1 ");
  EXPECT_EQ(threads_of(text({"threads=6", "parallel.dp=3"})), "threads: 6 ");
  const auto refused = [&](const std::vector<std::string>& more) {
    try {
      text(more);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  EXPECT_NE(refused({"threads=2", "parallel.dp=3"}).find("less than the number of ranks"), std::string::npos);
  EXPECT_NE(refused({"threads=4", "parallel.dp=4", "parallel.zero=1", "parallel.shard=3"})
                .find("parallel.shard 3 does not divide the 4 ranks with the same part of the model"),
            std::string::npos);
  EXPECT_NE(refused({"device=cpu,cpu", "threads=3", "parallel.dp=3"}).find("lists 2 devices"), std::string::npos);
  EXPECT_NE(refused({"threads=3", "affinity=" + cpu}).find("cannot bind 3 threads"), std::string::npos);
}

TEST_F(DryRunTest, StatesTheMemoryOfBalancedRouting) {
  const std::filesystem::path mixture = scratch_ / "mixture";
  std::filesystem::copy(std::filesystem::path(source_root) / "recipes" / "models" / "tiny", mixture);
  nlohmann::json config = nlohmann::json::parse(read_file(mixture / "config.json"));
  config["model_type"] = "mixtral";
  config["architectures"] = {"MixtralForCausalLM"};
  config["num_local_experts"] = 4;
  config["num_experts_per_tok"] = 2;
  std::ofstream(mixture / "config.json") << config;
  const std::string model = "model=" + mixture.string();
  EXPECT_EQ(tables({model, "parallel.dp=2"}).find("balanced routing"), std::string::npos);
  const std::string divided = tables({model, "parallel.dp=2", "parallel.ep=2"});
  EXPECT_EQ(count(divided, "  balanced routing"), count(divided, "  total")) << divided;
  EXPECT_NE(divided.find("if all experts are selected equally often"), std::string::npos) << divided;
}

TEST_F(DryRunTest, RefusesARankThatTheLayoutDoesNotHave) {
  for (const int64_t rank : {-1, 8}) {
    try {
      text({"parallel.dp=2", "parallel.pp=4"}, rank);
      FAIL() << rank;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(error.message().find("the ranks 0 to 7"), std::string::npos) << error.message();
    }
  }
}

TEST_F(DryRunTest, PlansForAnotherMachine) {
  const std::filesystem::path file = scratch_ / "machine.yaml";
  std::ofstream(file) << "name: big\ndevice: hip\nmemory_gib: 2.5\ndevices: 4\nhost_memory_gib: 64\n";
  const std::string planned = text({"device=hip", "parallel.dp=2", "parallel.zero=3"}, {}, file.string());
  for (const char* words : {"available: 2.5 GiB on big", "rank 1\n", "gathered weights"})
    EXPECT_NE(planned.find(words), std::string::npos) << words << " in " << planned;
  // GPUs gather by their vendor's library, unless the recipe says otherwise.
  EXPECT_EQ(planned.find("(host memory)"), std::string::npos) << planned;
  const std::string staged =
      text({"device=hip", "parallel.dp=2", "parallel.zero=3", "parallel.collectives=host"}, {}, file.string());
  EXPECT_NE(staged.find("(host memory)"), std::string::npos) << staged;
  std::ofstream(file) << "name: small\ndevice: cuda\nmemory_gib: 0.001\ndevices: 4\nhost_memory_gib: 64\n";
  EXPECT_NE(text({}, {}, file.string()).find("1.02 MiB are available on small"), std::string::npos);
  EXPECT_NE(
      train::refusal(ErrorKind::not_found, [&] { text({}, {}, "nowhere"); }).find("recipes/machines/nowhere.yaml"),
      std::string::npos);
}

TEST_F(DryRunTest, OffloadedOptimizerStateIsHostMemory) {
  const std::filesystem::path file = scratch_ / "machine.yaml";
  std::ofstream(file) << "name: big\ndevice: cuda\nmemory_gib: 2.5\ndevices: 4\nhost_memory_gib: 64\n";
  const auto with = [&](std::vector<std::string> more) {
    more.emplace_back("precision=bf16");
    return text(more, {}, file.string());
  };
  const std::string plain = with({}), offloaded = with({"parallel.offload=optimizer"});
  EXPECT_NE(plain.find("\n  master weights "), std::string::npos) << plain;
  EXPECT_EQ(offloaded.find("\n  master weights "), std::string::npos) << offloaded;
  EXPECT_NE(offloaded.find("(host memory)"), std::string::npos) << offloaded;
  EXPECT_EQ(offloaded.find("does not fit"), std::string::npos) << offloaded;
  std::ofstream(file) << "name: small\ndevice: cuda\nmemory_gib: 2.5\ndevices: 4\nhost_memory_gib: 0.01\n";
  const std::string full = with({"parallel.offload=optimizer"});
  EXPECT_NE(full.find("# does not fit: a rank needs"), std::string::npos) << full;
  EXPECT_NE(full.find("of host memory"), std::string::npos) << full;
}

// A model without weights is planned for its shape, in the types that the recipe asks for.
TEST_F(DryRunTest, PlansAdaptersWithoutTheFilesOfTheWeights) {
  const std::filesystem::path file = scratch_ / "machine.yaml";
  std::ofstream(file) << "name: big\ndevice: cuda\nmemory_gib: 2.5\ndevices: 4\nhost_memory_gib: 64\n";
  const std::vector<std::string> adapter = {"init=pretrained", "adapter={rank: 4}", "precision=bf16"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), adapter.begin(), adapter.end());
    return text(more, {}, file.string());
  };
  const auto weights = [](const std::string& planned) {
    const size_t at = planned.find("\n  weights ");
    return at == std::string::npos ? std::string() : planned.substr(at + 1, planned.find('\n', at + 1) - at - 1);
  };
  const std::string whole = with({});
  EXPECT_NE(whole.find("has no weights: planned for its shape"), std::string::npos) << whole;
  EXPECT_NE(weights(whole), "");
  EXPECT_NE(weights(with({"weights=int8"})), weights(whole));
  EXPECT_NE(weights(with({"parallel.dp=2", "parallel.zero=3"})), weights(whole));
  const std::string offloaded = with({"parallel.offload=weights"});
  EXPECT_EQ(weights(offloaded), "");
  EXPECT_NE(offloaded.find("offloaded weights"), std::string::npos) << offloaded;
  EXPECT_NE(train::refusal(ErrorKind::usage, [&] { with({"weights=stored"}); }).find("not known without their files"),
            std::string::npos);
}

}  // namespace
}  // namespace ingot::runs
