#include "data/megatron_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "data/loader.h"
#include "tests/data/megatron_source.h"
#include "tests/data/temp_folder.h"
#include "tests/locations.h"

namespace ingot::data {
namespace {

using Json = nlohmann::json;

constexpr int64_t any_token = 1 << 20;

struct Case {
  std::vector<MegatronSource> sources;
  MegatronSettings settings;
};

// Writes the case's sources and returns its settings.
Case prepare(const Json& json, const TempFolder& folder) {
  Case c;
  for (const Json& source : json["sources"]) {
    const int32_t number = static_cast<int32_t>(c.sources.size());
    c.sources.push_back({folder.path() / ("source" + std::to_string(number)), {}});
    if (source.contains("weight")) c.sources.back().weight = source["weight"];
    write_source(c.sources.back().path, source["lengths"], number);
  }
  c.settings.sequence_length = json["sequence_length"];
  c.settings.seed = json["seed"];
  c.settings.split = json.value("split", "");
  c.settings.part = json.value("part", 0) == 0 ? SplitPart::train : SplitPart::valid;
  if (json.contains("num_samples")) c.settings.num_samples = json["num_samples"];
  c.settings.drop_last_partial = json.value("drop_last_partial", true);
  c.settings.vocabulary = any_token;
  return c;
}

TEST(MegatronDataset, GivesMegatronsSamples) {
  const Json cases = Json::parse(read_file(std::filesystem::path(test_data) / "megatron/order.json"));
  for (const Json& json : cases) {
    SCOPED_TRACE(json.dump().substr(0, 300));
    const Json& wanted = json["wanted"];
    const TempFolder folder;
    const Case c = prepare(json, folder);
    const MegatronDataset dataset = MegatronDataset::build(c.sources, c.settings);
    ASSERT_EQ(dataset.num_sequences(), wanted["size"].get<int64_t>());
    ASSERT_EQ(dataset.members().size(), c.sources.size());
    const bool blended = wanted.contains("dataset_index");
    EXPECT_EQ(dataset.blend().source.empty(), !blended);
    if (blended) {
      EXPECT_EQ(dataset.blend().source, wanted["dataset_index"].get<std::vector<int16_t>>());
      EXPECT_EQ(dataset.blend().sample, wanted["dataset_sample_index"].get<std::vector<int64_t>>());
    }
    for (size_t k = 0; k < c.sources.size(); ++k) {
      const MegatronIndex& index = dataset.members()[k].index;
      EXPECT_EQ(index.documents, wanted["sources"][k]["document_index"].get<std::vector<int32_t>>());
      EXPECT_EQ(index.shuffle, wanted["sources"][k]["shuffle_index"].get<std::vector<uint32_t>>());
    }
    int64_t loss_tokens = 0, held = 0;  // over all samples
    for (size_t n = 0; n < wanted["samples"].size(); ++n) {
      const auto tokens = wanted["samples"][n].get<std::vector<int32_t>>();  // -1 is padding
      const PackedSequence sequence = dataset.get(static_cast<int64_t>(n));
      std::vector<int32_t> ids(tokens.begin(), tokens.end() - 1);
      const auto real = static_cast<int32_t>(std::ranges::find(ids, -1) - ids.begin());
      std::ranges::replace(ids, -1, 0);
      EXPECT_EQ(sequence.ids, ids);
      EXPECT_EQ(sequence.targets, std::vector<int32_t>(tokens.begin() + 1, tokens.end()));
      EXPECT_EQ(sequence.loss_tokens, std::ssize(tokens) - 1 - std::ranges::count(sequence.targets, -1));
      EXPECT_EQ(sequence.offsets.at(1), real);
      EXPECT_EQ(sequence.offsets.back(), static_cast<int32_t>(c.settings.sequence_length));
      EXPECT_EQ(num_tokens(sequence), real);
      loss_tokens += sequence.loss_tokens;
      held += real;
    }
    const DatasetStatistics& statistics = dataset.statistics();
    if (wanted["samples"].size() < static_cast<size_t>(dataset.num_sequences())) continue;
    EXPECT_EQ(statistics.num_loss_tokens, loss_tokens);
    EXPECT_EQ(statistics.num_tokens, held);
  }
}

class MegatronDatasetTest : public testing::Test {
 protected:
  MegatronDatasetTest() {
    write_source(a_, {30, 7, 12, 9}, 0);
    write_source(b_, {8, 21}, 1);
    settings_.sequence_length = 8;
    settings_.seed = 3;
    settings_.num_samples = 12;
    settings_.vocabulary = any_token;
  }

  MegatronDataset build(const std::vector<MegatronSource>& sources) const {
    return MegatronDataset::build(sources, settings_);
  }
  void refused(ErrorKind kind, const std::string& part, const std::vector<MegatronSource>& sources) const {
    try {
      build(sources);
      ADD_FAILURE() << "expected an error with: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(name(error.kind()), std::string(name(kind)));
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    }
  }

  TempFolder folder_;
  std::filesystem::path a_ = folder_.path() / "a", b_ = folder_.path() / "b";
  MegatronSettings settings_;
};

TEST_F(MegatronDatasetTest, StepsContinueAfterAResume) {
  const MegatronDataset dataset = build({{a_, 3}, {b_, 1}});
  const SequentialOrder order(dataset.num_sequences(), 4);
  EXPECT_EQ(order.step_samples(2), (std::vector<int64_t>{8, 9, 10, 11}));
  EXPECT_THROW(order.step_samples(3), Error);
  EXPECT_THROW(order.step_samples(-1), Error);
  Loader loader(dataset, order, 1);
  const HostBatch batch = loader.next();
  EXPECT_EQ(batch.step, 1);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(batch.sequences[i].ids, dataset.get(4 + static_cast<int64_t>(i)).ids);
  EXPECT_EQ(batch.loss_tokens, 32);
}

TEST_F(MegatronDatasetTest, PaddingIsMasked) {
  const MegatronDataset plain = build({{a_, {}}});
  const PackedSequence first = plain.get(0);
  settings_.pad_id = first.ids[3];
  const PackedSequence masked = build({{a_, {}}}).get(0);
  EXPECT_EQ(masked.ids[3], 0);
  EXPECT_EQ(masked.targets[2], -1);
  EXPECT_EQ(masked.loss_tokens, 7);
  EXPECT_EQ(masked.targets[3], first.targets[3]);
}

TEST_F(MegatronDatasetTest, HashesDistinguishDatasets) {
  const std::string hash = build({{a_, {}}}).content_hash();
  EXPECT_EQ(build({{a_, 2}}).content_hash(), hash);
  EXPECT_NE(build({{b_, {}}}).content_hash(), hash);
  settings_.num_samples = 13;  // from the same epochs: the same order
  EXPECT_EQ(build({{a_, {}}}).content_hash(), hash);
  settings_.num_samples = 70;
  EXPECT_NE(build({{a_, {}}}).content_hash(), hash);
  settings_.num_samples = 12;
  EXPECT_NE(build({{a_, 1}, {b_, 2}}).content_hash(), build({{a_, 1}, {b_, 3}}).content_hash());
  settings_.seed = 4;
  EXPECT_NE(build({{a_, {}}}).content_hash(), hash);
}

TEST_F(MegatronDatasetTest, RejectsInvalidSettings) {
  refused(ErrorKind::usage, "no data file", {});
  refused(ErrorKind::usage, "has no weight", {{a_, 1}, {b_, {}}});
  refused(ErrorKind::usage, "its weight is 0", {{a_, 0}, {b_, 1}});
  refused(ErrorKind::usage, "needs 12 samples, but its sources without weights have only 10", {{a_, {}}, {b_, {}}});
  refused(ErrorKind::not_found, "none.idx", {{folder_.path() / "none", {}}});
  settings_.num_samples.reset();
  refused(ErrorKind::usage, "repeated without end", {{a_, 1}, {b_, 1}});
  EXPECT_EQ(MegatronDataset::epoch_samples(std::vector<MegatronSource>{{a_, {}}, {b_, {}}}, settings_), 10);
  EXPECT_EQ(build({{a_, {}}, {b_, {}}}).num_sequences(), 10);
  settings_.sequence_length = 58;
  refused(ErrorKind::corrupt, "in use have 58 tokens", {{a_, {}}});
  settings_.sequence_length = 8;
  settings_.vocabulary = 20;
  EXPECT_THROW(build({{a_, {}}}).get(0), Error);
  EXPECT_THROW(build({{a_, {}}}).get(7), Error);
  const std::filesystem::path golden = std::filesystem::path(test_data) / "megatron";
  refused(ErrorKind::unsupported, "holds float32 values", {{golden / "float32", {}}});
}

}  // namespace
}  // namespace ingot::data
