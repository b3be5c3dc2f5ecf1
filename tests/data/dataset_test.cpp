#include "data/dataset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/data/byte_tokenizer.h"
#include "tests/data/temp_folder.h"

namespace ingot::data {
namespace {

class DatasetTest : public testing::Test {
 protected:
  Dataset build(const std::vector<Source>& sources, DatasetSettings settings, int threads = 2) {
    if (settings.packing.sequence_length == 0) settings.packing.sequence_length = 16;
    ThreadPool pool(threads);
    const auto chat = chat_template();
    return Dataset::build(sources, *tokenizer_, &chat, settings, pool);
  }

  // One text of ten letters per line: twelve tokens each with BOS and EOS.
  std::filesystem::path letters(const std::string& name, char from, int number) {
    std::string lines;
    for (int i = 0; i < number; ++i) {
      lines += "{\"text\": \"" + std::string(10, static_cast<char>(from + i)) + "\"}\n";
    }
    return folder_.file(name, lines);
  }

  // How often each text occurs in an epoch.
  std::map<char, int> contents(const Dataset& dataset) {
    std::map<char, int> counts;
    for (int64_t s = 0; s < dataset.num_sequences(); ++s) {
      const PackedSequence sequence = dataset.get(s);
      for (size_t j = 0; j < sequence.sample_ids.size(); ++j) {
        if (sequence.sample_ids[j] < 0) continue;
        ++counts[tokenizer_->token_text(sequence.ids[static_cast<size_t>(sequence.offsets[j]) + 1])[0]];
      }
    }
    return counts;
  }

  TempFolder folder_;
  std::unique_ptr<text::Tokenizer> tokenizer_ = byte_tokenizer();
};

TEST_F(DatasetTest, CountsDocumentsAndTokens) {
  const auto path = folder_.file("a.jsonl", R"({"prompt": "question", "completion": "yes"}
{"prompt": "q", "completion": "no"}
{"prompt": "a question longer than a sequence", "completion": "maybe"}
nonsense
{"prompt": "longer still", "completion": "perhaps"}
)");
  // Tokens: 1+8+3+1 = 13; 1+1+2+1 = 5; 1+33+5+1 = 40, truncated before its answer; 1+12+7+1 = 21, with 3 answer tokens
  // left.
  const Dataset dataset = build({{path}}, {.on_error = OnError::skip});
  const DatasetStatistics& statistics = dataset.statistics();
  EXPECT_EQ(statistics.num_files, 1);
  EXPECT_EQ(statistics.num_documents, 4);
  EXPECT_EQ(statistics.num_entries, 4);
  EXPECT_EQ(statistics.num_bad_lines, 1);
  EXPECT_NE(statistics.first_bad_line.find("a.jsonl line 4"), std::string::npos);
  EXPECT_EQ(statistics.num_truncated, 2);
  EXPECT_EQ(statistics.num_without_loss_tokens, 1);
  EXPECT_EQ(statistics.num_too_long, 0);
  EXPECT_EQ(statistics.num_sequences, 3);
  EXPECT_EQ(statistics.num_tokens, 13 + 5 + 16);
  EXPECT_EQ(statistics.num_loss_tokens, 4 + 3 + 3);
  EXPECT_EQ(statistics.longest, 16);
  EXPECT_DOUBLE_EQ(statistics.packing_efficiency, 34.0 / 48.0);
  int64_t loss_tokens = 0;
  for (int64_t s = 0; s < dataset.num_sequences(); ++s) loss_tokens += dataset.get(s).loss_tokens;
  EXPECT_EQ(loss_tokens, statistics.num_loss_tokens);
  EXPECT_EQ(dataset.get(2).ids.back(), pad);
  EXPECT_EQ(
      build({{path}}, {.on_error = OnError::skip, .packing = {.too_long = TooLong::skip}}).statistics().num_too_long,
      2);
}

TEST_F(DatasetTest, WeightsRepeatDocuments) {
  const auto first = letters("a.jsonl", 'a', 4), second = letters("b.jsonl", 'A', 8);
  const auto counts = contents(build({{first, 2.5}, {second, 0.25}}, {}));
  int twice = 0, thrice = 0, upper = 0;
  for (const auto& [letter, count] : counts) {
    if (letter < 'a') {
      EXPECT_EQ(count, 1);
      ++upper;
    } else {
      (count == 2 ? twice : thrice) += 1;
      EXPECT_TRUE(count == 2 || count == 3) << letter << count;
    }
  }
  EXPECT_EQ(twice, 2);
  EXPECT_EQ(thrice, 2);
  EXPECT_EQ(upper, 2);
}

TEST_F(DatasetTest, SeedChoosesTheDocumentsOfAFractionalWeight) {
  const auto path = letters("a.jsonl", 'a', 20);
  std::map<std::map<char, int>, int> choices;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const auto counts = contents(build({{path, 0.5}}, {.seed = seed}));
    EXPECT_EQ(counts.size(), 10U);
    EXPECT_EQ(counts, contents(build({{path, 0.5}}, {.seed = seed})));
    ++choices[counts];
  }
  EXPECT_GT(choices.size(), 4U);
}

TEST_F(DatasetTest, HashDependsOnContentOnly) {
  const auto path = letters("a.jsonl", 'a', 5);
  const std::string hash = build({{path}}, {}, 1).content_hash();
  EXPECT_EQ(hash.size(), 64U);
  EXPECT_EQ(build({{path}}, {}, 3).content_hash(), hash);
  EXPECT_EQ(build({{letters("copy.jsonl", 'a', 5)}}, {}).content_hash(), hash) << "the hash depends on the file's name";
  EXPECT_NE(build({{letters("b.jsonl", 'b', 5)}}, {}).content_hash(), hash);
  EXPECT_NE(build({{path}}, {.packing = {.sequence_length = 17}}).content_hash(), hash);
  EXPECT_NE(build({{path, 2}}, {}).content_hash(), hash);
  // The same ids with another loss mask.
  const auto masked = folder_.file("m.jsonl", R"({"prompt": "ab", "completion": "cd"})");
  const auto less = folder_.file("l.jsonl", R"({"prompt": "abc", "completion": "d"})");
  const auto a = build({{masked}}, {}), b = build({{less}}, {});
  EXPECT_EQ(a.get(0).ids, b.get(0).ids);
  EXPECT_NE(a.content_hash(), b.content_hash());
}

TEST_F(DatasetTest, FilesMayHaveDifferentFormats) {
  const auto text = folder_.file("a.txt", "abc");
  const auto chat = folder_.file("b.jsonl", R"({"messages": [{"role": "assistant", "content": "x"}]})");
  const Dataset dataset = build({{text}, {chat}}, {.packing = {.sequence_length = 64}});
  EXPECT_EQ(dataset.statistics().num_documents, 2);
  EXPECT_EQ(dataset.num_sequences(), 1);
  EXPECT_EQ(dataset.sequence_length(), 64);
}

TEST_F(DatasetTest, RejectsInvalidSettings) {
  const auto path = letters("a.jsonl", 'a', 2);
  expect_error(error_of([&] { build({}, {}); }), ErrorKind::usage, {"no data file"});
  for (const double weight : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    expect_error(error_of([&] { build({{path, weight}}, {}); }), ErrorKind::usage, {"a.jsonl", "weight"});
  }
  const Error secret = error_of([&] { build({{"https://user:secret@host/a.jsonl?key=secret", 0}}, {}); });
  expect_error(secret, ErrorKind::usage, {"https://host/a.jsonl: its weight"});
  EXPECT_EQ(secret.message().find("secret"), std::string::npos);
  expect_error(error_of([&] { build({{path, 1e12}}, {}); }), ErrorKind::usage,
               {"a.jsonl", "weight of 1000000000000", "more than 268435456 documents"});
  expect_error(error_of([&] { build({{path}}, {.packing = {.sequence_length = 1}}); }), ErrorKind::usage,
               {"sequence_length is 1"});
  expect_error(error_of([&] { build({{folder_.path() / "none.jsonl"}}, {}); }), ErrorKind::not_found, {"none.jsonl"});
  expect_error(error_of([&] { build({{path}}, {}).get(-1); }), ErrorKind::usage, {"sequence -1"});
}

}  // namespace
}  // namespace ingot::data
