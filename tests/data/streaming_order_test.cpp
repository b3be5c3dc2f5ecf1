// Sample orders compared with those of MosaicML Streaming (tools/reference/make_streaming_golden.py).
#include "data/streaming_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "tests/locations.h"

namespace ingot::data {
namespace {

using Json = nlohmann::json;
using SampleIds = std::vector<int64_t>;

Json golden(const std::string& name, const char* part) {
  return Json::parse(read_file(std::filesystem::path(test_data) / "data" / name)).at(part);
}

// The integer, or nothing for null and for a missing key.
std::optional<int64_t> maybe(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? std::nullopt : std::optional<int64_t>(found->get<int64_t>());
}

template <class Call>
void expect_usage(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.kind()), std::string("usage")) << error.message();
    return;
  }
  ADD_FAILURE() << "no error";
}

void expect_shuffles(const std::string& file, int64_t least) {
  int64_t compared = 0;
  for (const Json& expected : golden(file, "shuffles")) {
    const SampleIds units = expected.at("units").get<SampleIds>();
    const SampleIds ids = streaming_shuffle(parse_streaming_shuffle(expected.at("algorithm").get<std::string>()), units,
                                            expected.at("nodes"), 9176, expected.at("epoch"), expected.at("block"));
    EXPECT_EQ(ids, expected.at("ids").get<SampleIds>()) << expected;
    ++compared;
  }
  EXPECT_GE(compared, least);
}

TEST(StreamingOrder, ShufflesAreStreamings) { expect_shuffles("streaming.json", 120); }
TEST(StreamingOrder, Py1bShuffleIsThatOfRelease09) { expect_shuffles("streaming_py1b.json", 24); }

TEST(StreamingOrder, PartitionsAreStreamings) {
  int64_t compared = 0, refused = 0;
  for (const Json& expected : golden("streaming.json", "partitions")) {
    const auto partition = [&] {
      const StreamingWorld world{expected.at("nodes"), expected.at("ranks"), expected.at("workers")};
      return streaming_partition(parse_streaming_partition(expected.at("algorithm").get<std::string>()),
                                 expected.at("samples"), expected.at("canonical"), world, expected.at("batch"),
                                 expected.at("drop"), maybe(expected, "initial"));
    };
    if (expected.at("ids").is_null()) {
      SCOPED_TRACE(expected);
      expect_usage(partition);
      ++refused;
    } else {
      EXPECT_EQ(partition().ids, expected.at("ids").get<SampleIds>()) << expected;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
  EXPECT_GT(refused, 10);
}

// Datasets of several streams with every kind of weight, partition and shuffle, started on two nodes and resumed on one
// and on three.
TEST(StreamingOrder, OrdersOfDatasetsAreStreamings) {
  std::set<std::pair<std::string, std::string>> pairs;
  for (const Json& expected : golden("streaming.json", "datasets")) {
    const Json& arguments = expected.at("arguments");
    SCOPED_TRACE(arguments);
    std::vector<StreamingStream> streams;
    for (const Json& stream : expected.at("streams")) {
      StreamingStream& added = streams.emplace_back();
      added.shards = stream.at("shards").get<SampleIds>();
      if (stream.contains("proportion")) added.proportion = stream["proportion"].get<double>();
      if (stream.contains("repeat")) added.repeat = stream["repeat"].get<double>();
      added.choose = maybe(stream, "choose");
    }
    StreamingSettings settings;
    settings.shuffle = arguments.at("shuffle");
    settings.algorithm = parse_streaming_shuffle(arguments.at("shuffle_algo").get<std::string>());
    settings.partition = parse_streaming_partition(arguments.at("partition_algo").get<std::string>());
    settings.sampling = parse_streaming_sampling(arguments.at("sampling_method").get<std::string>());
    settings.granularity = arguments.at("sampling_granularity");
    settings.canonical_nodes = maybe(arguments, "num_canonical_nodes");
    settings.block_size = maybe(arguments, "shuffle_block_size");
    settings.seed = arguments.at("shuffle_seed");
    settings.epoch_size = maybe(arguments, "epoch_size");
    if (settings.shuffle) pairs.emplace(arguments.at("partition_algo"), arguments.at("shuffle_algo"));

    const StreamingOrder order(streams, settings);
    EXPECT_EQ(order.canonical_nodes(2), expected.at("canonical").get<int64_t>());
    for (const Json& work : expected.at("works")) {
      SCOPED_TRACE(work);
      StreamingState state = order.begin({2, 1, 1});
      state.epoch = work.at("epoch");
      state.sample_in_epoch = work.at("drop");
      state.initial_nodes = maybe(work, "initial");
      const StreamingWorld world{work.at("nodes"), work.at("ranks"), work.at("workers")};
      const auto ids = [&] { return order.work(world, work.at("batch"), state).ids; };
      if (work.at("ids").is_null()) {
        expect_usage(ids);
      } else {
        EXPECT_EQ(ids(), work.at("ids").get<SampleIds>());
      }
    }
  }
  EXPECT_EQ(pairs.size(), 10U);
}

// The samples of each global batch in the remainder of an epoch.
std::vector<std::vector<int64_t>> global_batches(const WorkerSamples& work) {
  std::vector<SampleIds> batches;
  for (int64_t q = 0; q < work.world.workers * work.num_batches; ++q) {
    SampleIds& batch = batches.emplace_back();
    for (int64_t rank = 0; rank < work.world.num_ranks(); ++rank) {
      for (int64_t b = 0; b < work.batch; ++b) batch.push_back(work.at(rank, q, b));
    }
    std::sort(batch.begin(), batch.end());
    if (batch.back() < 0) batches.pop_back();
  }
  return batches;
}

TEST(StreamingOrder, GlobalBatchesDoNotChangeWhenResumedOnOtherNodes) {
  StreamingSettings settings;
  settings.shuffle = true;
  settings.block_size = 40;
  settings.canonical_nodes = 4;
  const StreamingOrder order({{.shards = {30, 50, 40, 24}}}, settings);
  const auto whole = global_batches(order.work({2, 2, 1}, 6, order.begin({2, 2, 1})));
  ASSERT_EQ(whole.size(), 6U);
  for (const auto& [world, batch] :
       {std::pair(StreamingWorld{1, 1, 1}, 24), {{1, 2, 3}, 12}, {{4, 2, 2}, 3}, {{3, 2, 1}, 4}, {{2, 4, 1}, 3}}) {
    for (const int64_t steps : {0, 1, 4}) {
      StreamingState state = order.begin({2, 2, 1});
      state.sample_in_epoch = 24 * steps;
      EXPECT_EQ(global_batches(order.work(world, batch, state)), std::vector(whole.begin() + steps, whole.end()))
          << world.nodes << " nodes of " << world.ranks << " after " << steps;
    }
  }
}

TEST(StreamingOrder, StatesSurviveARoundTrip) {
  const StreamingState state{3, 480, 8, 9176, 2};
  const std::string text = streaming_state_json(state);
  EXPECT_EQ(
      text,
      R"({"epoch":3,"initial_physical_nodes":2,"num_canonical_nodes":8,"sample_in_epoch":480,"shuffle_seed":9176})");
  const StreamingState again = parse_streaming_state(text, "state.json");
  EXPECT_EQ(streaming_state_json(again), text);
  const char* old = R"({"epoch": 3, "num_canonical_nodes": 8, "sample_in_epoch": 0, "shuffle_seed": 1})";
  EXPECT_FALSE(parse_streaming_state(old, "state.json").initial_nodes.has_value());
  for (const char* bad : {"[]", "{", R"({"epoch": 3})",
                          R"({"epoch": -1, "num_canonical_nodes": 8, "sample_in_epoch": 0, "shuffle_seed": 1})"}) {
    try {
      parse_streaming_state(bad, "state.json");
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(name(error.kind()), std::string("corrupt"));
      EXPECT_EQ(error.message().substr(0, 11), "state.json:");
    }
  }
}

TEST(StreamingOrder, RejectsInvalidSettings) {
  const StreamingStream plain{.shards = {4}};
  StreamingStream proportion = plain, two = plain, none = plain;
  proportion.proportion = 1;
  two.repeat = 1;
  two.choose = 1;
  none.repeat = 0;
  const auto choices = [](std::vector<StreamingStream> streams, std::optional<int64_t> size) {
    return [streams = std::move(streams), size] { streaming_choices(streams, size, 1); };
  };
  expect_usage(choices({}, {}));
  expect_usage(choices({{}}, {}));
  expect_usage(choices({plain, proportion}, {}));
  expect_usage(choices({two}, {}));
  expect_usage(choices({none}, {}));
  expect_usage(choices({plain}, 0));
  StreamingStream repeat = plain;
  repeat.repeat = 2;
  expect_usage(choices({repeat}, 3));
  const SampleIds units = {4, 3};
  const auto shuffle = [&](StreamingShuffle algorithm, int64_t nodes, int64_t block) {
    return [&units, algorithm, nodes, block] { streaming_shuffle(algorithm, units, nodes, 1, 0, block); };
  };
  expect_usage(shuffle(StreamingShuffle::py1e, 0, 8));
  expect_usage(shuffle(StreamingShuffle::py1e, 8, 8));
  expect_usage(shuffle(StreamingShuffle::py1br, 1, 1));
  const auto partition = [](int64_t samples, int64_t batch, int64_t drop, std::optional<int64_t> initial) {
    return [=] { streaming_partition(StreamingPartition::relaxed, samples, 4, {3, 1, 1}, batch, drop, initial); };
  };
  expect_usage(partition(12, 2, 0, {}));
  expect_usage(partition(12, 3, 0, 2));
  expect_usage(partition(0, 2, 0, 2));
  expect_usage(partition(12, 2, 16, 2));
  expect_usage(partition(12, 0, 0, 2));
  expect_usage([] { parse_streaming_shuffle("py3"); });
  expect_usage([] { parse_streaming_partition("new"); });
  expect_usage([] { parse_streaming_sampling("random"); });
}

}  // namespace
}  // namespace ingot::data
