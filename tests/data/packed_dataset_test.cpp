#include "data/packed_dataset.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "tests/data/byte_tokenizer.h"
#include "tests/data/temp_folder.h"
#include "tests/storage/s3_server.h"

namespace ingot::data {
namespace {

namespace fs = std::filesystem;

class Packed : public testing::Test {
 protected:
  Packed() : dataset_(build()) {
    write_packed(dataset_, tokenizer_->size(), folder_.path() / "packed", {"", {"xxh64"}, 900},
                 [](int64_t) { return true; });
  }
  Dataset build() {
    std::string lines;
    for (int i = 0; i < 50; ++i) {
      lines += "{\"prompt\": \"question " + std::to_string(i) + "\", \"completion\": \"" +
               std::string(static_cast<size_t>(1 + i % 9), 'x') + "\"}\n";
    }
    DatasetSettings settings;
    settings.packing.sequence_length = 48;
    ThreadPool pool(1);
    const Source source{folder_.file("a.jsonl", lines), 1};
    return Dataset::build(std::span(&source, 1), *tokenizer_, nullptr, settings, pool);
  }
  std::string path() const { return (folder_.path() / "packed").string(); }
  static void same(const PackedSequence& a, const PackedSequence& b) {
    EXPECT_EQ(a.ids, b.ids);
    EXPECT_EQ(a.targets, b.targets);
    EXPECT_EQ(a.offsets, b.offsets);
    EXPECT_EQ(a.sample_ids, b.sample_ids);
    EXPECT_EQ(a.loss_tokens, b.loss_tokens);
  }
  PackedDataset open(const std::string& at, double weight = 1, int64_t length = 48, int64_t vocabulary = 0) const {
    const Source source{at, weight};
    return {std::span(&source, 1), length, vocabulary == 0 ? tokenizer_->size() : vocabulary};
  }
  void refused(ErrorKind kind, const std::string& words, const std::function<void()>& action) const {
    try {
      action();
      ADD_FAILURE() << "expected an error with: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(name(error.kind()), std::string(name(kind)));
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
    }
  }

  TempFolder folder_;
  std::unique_ptr<text::Tokenizer> tokenizer_ = byte_tokenizer();
  Dataset dataset_;
};

TEST_F(Packed, GivesTheSequencesOfTheDataset) {
  EXPECT_TRUE(is_packed(path()));
  EXPECT_FALSE(is_packed(folder_.path()));
  const PackedDataset packed = open(path());
  EXPECT_GT(dataset_.num_sequences(), 20);
  ASSERT_EQ(packed.num_sequences(), dataset_.num_sequences());
  EXPECT_EQ(packed.content_hash(), dataset_.content_hash());
  EXPECT_EQ(packed.statistics().num_loss_tokens, dataset_.statistics().num_loss_tokens);
  EXPECT_EQ(packed.statistics().squared_lengths, dataset_.statistics().squared_lengths);
  for (int64_t i = 0; i < packed.num_sequences(); ++i) same(packed.get(i), dataset_.get(i));
  const PackedDataset twice = open(path(), 2);
  EXPECT_EQ(twice.num_sequences(), 2 * dataset_.num_sequences());
  EXPECT_NE(twice.content_hash(), packed.content_hash());
  same(twice.get(dataset_.num_sequences() + 3), dataset_.get(3));
  EXPECT_THROW(packed.get(packed.num_sequences()), Error);
}

TEST_F(Packed, MismatchedFilesAreRefused) {
  refused(ErrorKind::usage, "in sequences of 48 tokens, not of 64", [&] { open(path(), 1, 64); });
  refused(ErrorKind::usage, "cannot have the weight 1.5", [&] { open(path(), 1.5); });
  refused(ErrorKind::corrupt, "a vocabulary of", [&] { open(path(), 1, 48, 100); });
  const std::string packing = read_file(folder_.path() / "packed/packing.json");
  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string text = packing;
    text.replace(text.find(from), from.size(), to);
    write_file(folder_.path() / "packed/packing.json", text);
    return [this] { open(path()); };
  };
  refused(ErrorKind::corrupt, "packing.json", damaged("\"version\"", "\"versio\""));
  refused(ErrorKind::unsupported, "version 2", damaged("\"version\": 1", "\"version\": 2"));
  refused(ErrorKind::unsupported, "packing.json: is", [&] {  // whatever the other keys are
    write_file(folder_.path() / "packed/packing.json", "{\"version\": 2}");
    open(path());
  });
  refused(ErrorKind::corrupt, "does not match its index", damaged("\"sequences\": ", "\"sequences\": 1"));
  refused(ErrorKind::corrupt, "not a whole number", damaged("\"tokens\": ", "\"tokens\": -"));
  // Token counts whose sum over repetitions or folders overflows.
  damaged("\"tokens\": ", "\"tokens\": 9000000000000000000, \"was\": ");
  refused(ErrorKind::corrupt, "packing.json: 9000000000000000000 \"tokens\", 2 times, overflow",
          [&] { open(path(), 2); });
  refused(ErrorKind::corrupt, "packing.json: 9000000000000000000 \"tokens\", 1 times, overflow", [&] {
    const std::array<Source, 2> both = {Source{path(), 1}, Source{path(), 1}};
    const PackedDataset packed(both, 48, tokenizer_->size());
  });
  write_file(folder_.path() / "packed/packing.json", "[");
  refused(ErrorKind::corrupt, "packing.json", [&] { open(path()); });
}

// Packed data in an object store: the run's loader announces the order, and each shard is fetched once.
TEST_F(Packed, ShardsArePrefetchedInTheRunsOrder) {
  S3Server server;
  server.announce();
  ::setenv("INGOT_CACHE", (folder_.path() / "cache").c_str(), 1);
  size_t shards = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(path())) {
    server.put("bucket/packed/" + entry.path().filename().string(), read_file(entry.path()));
    shards += entry.path().extension() == ".mds" ? 1 : 0;
  }
  EXPECT_GT(shards, 5U);
  {
    const PackedDataset packed = open("s3://bucket/packed");
    const Sampler order(packed.num_sequences(), 3, 4);
    Loader loader(packed, order, 0);
    for (int64_t step = 0; step < 12; ++step) {
      const HostBatch batch = loader.next();
      for (size_t i = 0; i < batch.samples.size(); ++i) same(batch.sequences[i], dataset_.get(batch.samples[i]));
    }
  }
  size_t fetched = 0;
  for (const S3Server::Request& request : server.requests()) fetched += request.key.ends_with(".mds") ? 1 : 0;
  EXPECT_EQ(fetched, shards);
  EXPECT_EQ(server.problem(), "");
  ::unsetenv("INGOT_CACHE");
}

TEST_F(Packed, ACacheThatCannotBeCreatedIsReported) {
  S3Server server;
  server.announce();
  for (const fs::directory_entry& entry : fs::directory_iterator(path())) {
    server.put("bucket/packed/" + entry.path().filename().string(), read_file(entry.path()));
  }
  ::setenv("INGOT_CACHE", (folder_.file("in the way", "") / "cache").c_str(), 1);
  {
    const PackedDataset packed = open("s3://bucket/packed");
    const int64_t last = packed.num_sequences() - 1;
    packed.expect(std::span(&last, 1));
    refused(ErrorKind::unavailable, "in the way", [&] { packed.get(0); });
  }
  ::unsetenv("INGOT_CACHE");
}

// `expect` starts fetches before anything is read, in any order.
TEST_F(Packed, ExpectedShardsAreFetchedAhead) {
  S3Server server;
  server.announce();
  ::setenv("INGOT_CACHE", (folder_.path() / "cache").c_str(), 1);
  for (const fs::directory_entry& entry : fs::directory_iterator(path())) {
    server.put("bucket/packed/" + entry.path().filename().string(), read_file(entry.path()));
  }
  {
    const PackedDataset packed = open("s3://bucket/packed");
    const int64_t last = packed.num_sequences() - 1;
    packed.expect(std::span(&last, 1));
    const auto has = [&] {
      for (const S3Server::Request& request : server.requests()) {
        if (request.key.ends_with(".mds")) return true;
      }
      return false;
    };
    while (!has()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ::unsetenv("INGOT_CACHE");
}

}  // namespace
}  // namespace ingot::data
