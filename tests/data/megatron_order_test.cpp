#include "data/megatron_order.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "tests/data/megatron_source.h"
#include "tests/data/temp_folder.h"
#include "tests/locations.h"

namespace ingot::data {
namespace {

using Json = nlohmann::json;
using Pair = std::array<int64_t, 2>;

TEST(MegatronOrder, GivesMegatronsOrder) {
  const Json cases = Json::parse(read_file(std::filesystem::path(test_data) / "megatron/order.json"));
  EXPECT_EQ(cases.size(), 25U);
  for (const Json& c : cases) {
    SCOPED_TRACE(c.dump().substr(0, 300));
    const Json& source = c["sources"][0];
    if (c["sources"].size() > 1 || source.contains("weight")) continue;  // in megatron_dataset_test.cpp
    const TempFolder folder;
    write_source(folder.path() / "source", source["lengths"], 0);
    const formats::MegatronFile file(folder.path() / "source");
    const SequenceRange range = c.contains("split") ? split_range(c["split"], c.value("part", 0), file.num_sequences())
                                                    : SequenceRange{0, file.num_sequences()};
    std::optional<int64_t> num_samples;
    if (c.contains("num_samples")) num_samples = c["num_samples"];
    const int64_t length = c["sequence_length"];
    const MegatronIndex index =
        build_megatron_index(file, range, length, num_samples, c["seed"], c.value("drop_last_partial", true));
    const Json& expected = c["wanted"]["sources"][0];
    EXPECT_EQ(index.documents, expected["document_index"].get<std::vector<int32_t>>());
    EXPECT_EQ(index.shuffle, expected["shuffle_index"].get<std::vector<uint32_t>>());
    std::vector<Pair> samples;
    for (size_t i = 0; i < index.positions.size(); ++i) samples.push_back({index.positions[i], index.offsets[i]});
    EXPECT_EQ(samples, expected["sample_index"].get<std::vector<Pair>>());
    EXPECT_EQ(index.num_samples(), c["wanted"]["size"].get<int64_t>());
    for (size_t i = 0; i < c["wanted"]["samples"].size(); ++i) {
      auto tokens = c["wanted"]["samples"][i].get<std::vector<int32_t>>();
      std::erase(tokens, -1);  // padding
      EXPECT_EQ(read_sample(file, index, index.shuffle[i], length), tokens);
    }
  }
}

TEST(MegatronOrder, WeightsAreSummedLikeNumpy) {
  // The values of numpy.sum, which sums in pairs. Sequential sums are 1.0000000000000002 and 50.00000000000044.
  const std::vector<double> nine = {0.1, 0.2, 0.3, 0.05, 0.05, 0.1, 0.1, 0.05, 0.05};
  EXPECT_EQ(normalise(nine)[0], 0.1);
  const std::vector<double> many(500, 0.1);
  EXPECT_EQ(normalise(many)[0], 0.1 / 50.0);
}

TEST(MegatronOrder, RejectsInvalidSplits) {
  for (const char* split : {"", "a", "1,,1", "1,1,1,1", "0,0,0", "-1,2", "nan", "1 1", "1,"}) {
    EXPECT_THROW(split_range(split, 0, 10), Error) << split;
  }
  EXPECT_EQ(split_range("1", 0, 10).size(), 10);
  EXPECT_EQ(split_range("1", 1, 10).size(), 0);
}

TEST(MegatronOrder, RejectsDataWithoutSamples) {
  const TempFolder folder;
  write_source(folder.path() / "source", {3, 5}, 0);
  const formats::MegatronFile file(folder.path() / "source");
  EXPECT_EQ(build_megatron_index(file, {0, 2}, 7, 1, 0).num_samples(), 1);
  EXPECT_EQ(build_megatron_index(file, {0, 2}, 8, 1, 0).num_epochs, 2);
  EXPECT_THROW(build_megatron_index(file, {0, 2}, 8, {}, 0), Error);
  EXPECT_EQ(build_megatron_index(file, {0, 2}, 8, {}, 0, false).num_samples(), 1);
  EXPECT_THROW(build_megatron_index(file, {0, 1}, 4, {}, 0), Error);
  EXPECT_THROW(build_megatron_index(file, {1, 1}, 4, 10, 0), Error);
  EXPECT_THROW(build_megatron_index(file, {0, 2}, 7, int64_t{1} << 40, 0), Error);
}

}  // namespace
}  // namespace ingot::data
