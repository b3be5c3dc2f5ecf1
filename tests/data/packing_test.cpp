#include "data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/philox.h"
#include "tests/data/temp_folder.h"

namespace ingot::data {
namespace {

// Token i of document d is 1000 d + i, which identifies its origin.
TokenizedDocument document(int32_t index, std::vector<uint8_t> loss_mask, bool splittable) {
  TokenizedDocument result;
  for (size_t i = 0; i < loss_mask.size(); ++i) result.ids.push_back(1000 * index + static_cast<int32_t>(i));
  result.loss_mask = std::move(loss_mask);
  result.splittable = splittable;
  return result;
}

TokenizedDocument plain(int32_t index, size_t length) { return document(index, std::vector<uint8_t>(length, 1), true); }

// The answer is the last `answer` of `length` tokens.
TokenizedDocument chat(int32_t index, size_t length, size_t answer) {
  std::vector<uint8_t> loss_mask(length, 0);
  std::fill(loss_mask.end() - static_cast<int64_t>(answer), loss_mask.end(), uint8_t{1});
  return document(index, loss_mask, false);
}

Corpus corpus_of(const std::vector<TokenizedDocument>& documents) {
  Corpus corpus;
  for (const auto& each : documents) corpus.add(each);
  return corpus;
}

std::vector<int64_t> all_of(const Corpus& corpus) {
  std::vector<int64_t> entries(static_cast<size_t>(corpus.num_documents()));
  std::iota(entries.begin(), entries.end(), 0);
  return entries;
}

using Ints = std::vector<int32_t>;

TEST(BestFitDecreasing, FillsTheFullestBinWithRoom) {
  // 7 and 6 open bins. The first 3 fills the bin of 7, the 2 goes to the bin of 6, and the second 3 opens a third bin.
  EXPECT_EQ(best_fit_decreasing(std::vector<int64_t>{2, 3, 6, 7, 3}, 10), (std::vector<int64_t>{2, 0, 1, 0, 1}));
  EXPECT_EQ(best_fit_decreasing(std::vector<int64_t>{5, 5, 5}, 10), (std::vector<int64_t>{0, 0, 1}));
  EXPECT_EQ(best_fit_decreasing({}, 10), (std::vector<int64_t>{}));
  EXPECT_EQ(best_fit_decreasing(std::vector<int64_t>{10, 1}, 10), (std::vector<int64_t>{0, 1}));
}

// The same rule, by a linear search over all bins.
std::vector<int64_t> slow_best_fit(const std::vector<int64_t>& lengths, int64_t capacity) {
  std::vector<int64_t> bins(lengths.size(), -1), free_tokens;
  for (int64_t length = capacity; length > 0; --length) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (lengths[i] != length) continue;
      size_t best = free_tokens.size();
      for (size_t b = 0; b < free_tokens.size(); ++b) {
        if (free_tokens[b] >= length && (best == free_tokens.size() || free_tokens[b] < free_tokens[best])) best = b;
      }
      if (best == free_tokens.size()) free_tokens.push_back(capacity);
      free_tokens[best] -= length;
      bins[i] = static_cast<int64_t>(best);
    }
  }
  return bins;
}

TEST(BestFitDecreasing, AgreesWithALinearSearch) {
  RandomStream random(1);
  for (int trial = 0; trial < 50; ++trial) {
    const int64_t capacity = 2 + static_cast<int64_t>(random.below(60));
    std::vector<int64_t> lengths(random.below(200));
    for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(capacity)));
    ASSERT_EQ(best_fit_decreasing(lengths, capacity), slow_best_fit(lengths, capacity)) << trial;
  }
}

TEST(BestFitDecreasing, AMillionDocumentsLeaveLittlePadding) {
  RandomStream random(2);
  std::vector<int64_t> lengths(1'000'000);
  for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random.below(2000));
  const auto bins = best_fit_decreasing(lengths, 2048);
  const int64_t num_bins = *std::max_element(bins.begin(), bins.end()) + 1;
  std::vector<int64_t> fill(static_cast<size_t>(num_bins), 0);
  for (size_t i = 0; i < bins.size(); ++i) fill[static_cast<size_t>(bins[i])] += lengths[i];
  EXPECT_LE(*std::max_element(fill.begin(), fill.end()), 2048);
  EXPECT_GE(*std::min_element(fill.begin(), fill.end()), 1);
  // No packing needs fewer bins than tokens / capacity. Best fit decreasing needs at most 11/9 of the optimum plus 4
  // (Johnson 1973), and far fewer with pieces this small.
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  EXPECT_LE(num_bins, tokens * 11 / 9 / 2048 + 4);
}

TEST(Packing, TargetsStayInsideDocumentsAndFollowTheMask) {
  const Corpus corpus = corpus_of({chat(0, 5, 2), plain(1, 3)});
  const PackingPlan plan = plan_packing(corpus, all_of(corpus), {.sequence_length = 12});
  ASSERT_EQ(plan.num_sequences(), 1);
  const PackedSequence sequence = assemble(corpus, plan, 0, 12, 77);
  EXPECT_EQ(sequence.ids, (Ints{0, 1, 2, 3, 4, 1000, 1001, 1002, 77, 77, 77, 77}));
  EXPECT_EQ(sequence.targets, (Ints{-1, -1, 3, 4, -1, 1001, 1002, -1, -1, -1, -1, -1}));
  EXPECT_EQ(sequence.offsets, (Ints{0, 5, 8, 12}));
  EXPECT_EQ(sequence.sample_ids, (std::vector<int64_t>{0, 1, -1}));
  EXPECT_EQ(sequence.loss_tokens, 4);
  EXPECT_EQ(positions(sequence), (Ints{0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3}));
  EXPECT_EQ(plan.num_tokens, 8);
}

TEST(Packing, AFullSequenceHasNoPadding) {
  const Corpus corpus = corpus_of({plain(0, 4), plain(1, 4)});
  const PackingPlan plan = plan_packing(corpus, all_of(corpus), {.sequence_length = 8});
  const PackedSequence sequence = assemble(corpus, plan, 0, 8, 77);
  EXPECT_EQ(sequence.offsets, (Ints{0, 4, 8}));
  EXPECT_EQ(std::count(sequence.ids.begin(), sequence.ids.end(), 77), 0);
}

TEST(Packing, LongTextsAreCutIntoPieces) {
  const Corpus corpus = corpus_of({plain(0, 10), plain(1, 9)});
  const PackingPlan plan = plan_packing(corpus, all_of(corpus), {.sequence_length = 4});
  // 4 + 4 + 2 and 4 + 4 + 1; the last piece has one token and therefore no target.
  EXPECT_EQ(plan.num_sequences(), 5);
  EXPECT_EQ(plan.num_without_loss_tokens, 1);
  EXPECT_EQ(plan.num_tokens, 18);
  EXPECT_EQ(plan.num_truncated, 0);
  EXPECT_EQ(assemble(corpus, plan, 1, 4, 77).ids, (Ints{4, 5, 6, 7}));
  EXPECT_EQ(assemble(corpus, plan, 1, 4, 77).targets, (Ints{5, 6, 7, -1}));
  EXPECT_EQ(assemble(corpus, plan, 4, 4, 77).ids, (Ints{8, 9, 77, 77}));
}

TEST(Packing, LongChatsAreTruncatedSkippedOrErrors) {
  // Document 0 keeps 2 tokens of its answer, 1 fits, and 2 loses its whole answer.
  const Corpus corpus = corpus_of({chat(0, 10, 4), chat(1, 6, 1), chat(2, 20, 5)});
  const auto entries = all_of(corpus);
  PackingPlan plan = plan_packing(corpus, entries, {.sequence_length = 8});
  EXPECT_EQ(plan.num_truncated, 2);
  EXPECT_EQ(plan.num_without_loss_tokens, 1);
  EXPECT_EQ(plan.num_sequences(), 2);
  EXPECT_EQ(assemble(corpus, plan, 0, 8, 77).loss_tokens, 2);

  plan = plan_packing(corpus, entries, {.sequence_length = 8, .too_long = TooLong::skip});
  EXPECT_EQ(plan.num_skipped, 2);
  EXPECT_EQ(plan.num_sequences(), 1);
  EXPECT_EQ(assemble(corpus, plan, 0, 8, 77).sample_ids, (std::vector<int64_t>{1, -1}));

  expect_error(error_of([&] { plan_packing(corpus, entries, {.sequence_length = 8, .too_long = TooLong::stop}); }),
               ErrorKind::corrupt, {"document 0", "10 tokens", "sequence length 8", "truncate"});
}

TEST(Packing, WithoutPackingEachPieceIsASequence) {
  const Corpus corpus = corpus_of({plain(0, 2), plain(1, 6), chat(2, 3, 1)});
  const PackingPlan plan = plan_packing(corpus, all_of(corpus), {.sequence_length = 4, .packing = false});
  ASSERT_EQ(plan.num_sequences(), 4);
  EXPECT_EQ(assemble(corpus, plan, 0, 4, 9).ids, (Ints{0, 1, 9, 9}));
  EXPECT_EQ(assemble(corpus, plan, 1, 4, 9).ids, (Ints{1000, 1001, 1002, 1003}));
  EXPECT_EQ(assemble(corpus, plan, 2, 4, 9).ids, (Ints{1004, 1005, 9, 9}));
  EXPECT_EQ(assemble(corpus, plan, 3, 4, 9).offsets, (Ints{0, 3, 4}));
}

// For any lengths, every token that is kept is in exactly one sequence, and the loss tokens are those of the pieces.
TEST(Packing, NeitherLosesNorDuplicatesTokens) {
  RandomStream random(3);
  for (const bool packing : {true, false}) {
    for (int trial = 0; trial < 20; ++trial) {
      const int64_t length = 2 + static_cast<int64_t>(random.below(30));
      Corpus corpus;
      std::vector<int64_t> entries;
      for (int32_t d = 0; d < 40; ++d) {
        corpus.add(plain(d, 1 + random.below(100)));
        for (uint64_t repeat = random.below(3); repeat > 0; --repeat) entries.push_back(d);
      }
      const PackingPlan plan = plan_packing(corpus, entries, {.sequence_length = length, .packing = packing});
      std::vector<int32_t> expected, found;
      int64_t expected_targets = 0, found_targets = 0;
      for (const int64_t entry : entries) {
        const auto ids = corpus.document(entry).ids;
        const auto size = static_cast<int64_t>(ids.size());
        const int64_t kept = size % length == 1 ? size - 1 : size;
        expected.insert(expected.end(), ids.begin(), ids.begin() + kept);
        expected_targets += kept - (kept + length - 1) / length;
      }
      for (int64_t s = 0; s < plan.num_sequences(); ++s) {
        const PackedSequence sequence = assemble(corpus, plan, s, length, -7);
        ASSERT_EQ(static_cast<int64_t>(sequence.ids.size()), length);
        ASSERT_EQ(sequence.targets.size(), sequence.ids.size());
        ASSERT_EQ(sequence.offsets.size(), sequence.sample_ids.size() + 1);
        for (const int32_t id : sequence.ids) {
          if (id != -7) found.push_back(id);
        }
        found_targets += sequence.loss_tokens;
        for (size_t i = 0; i < sequence.ids.size(); ++i) {
          if (sequence.targets[i] != -1) ASSERT_EQ(sequence.targets[i], sequence.ids[i] + 1);
        }
      }
      std::sort(expected.begin(), expected.end());
      std::sort(found.begin(), found.end());
      ASSERT_EQ(found, expected);
      ASSERT_EQ(found_targets, expected_targets);
    }
  }
}

TEST(Packing, RejectsInvalidSettings) {
  const Corpus corpus = corpus_of({plain(0, 5)});
  const Corpus masked = corpus_of({chat(0, 5, 0)});
  const std::vector<int64_t> entries = {0};
  expect_error(error_of([&] { plan_packing(corpus, entries, {.sequence_length = 1}); }), ErrorKind::usage,
               {"sequence_length is 1", "at least 2"});
  expect_error(error_of([&] { plan_packing(corpus, entries, {.sequence_length = max_sequence_length + 1}); }),
               ErrorKind::usage, {"sequence_length is 4194305", "at most 4194304"});
  expect_error(error_of([&] { plan_packing(masked, entries, {.sequence_length = 8}); }), ErrorKind::corrupt,
               {"none of the 1 documents"});
  const PackingPlan plan = plan_packing(corpus, entries, {.sequence_length = 8});
  expect_error(error_of([&] { assemble(corpus, plan, 1, 8, 0); }), ErrorKind::usage, {"sequence 1", "there are 1"});
  expect_error(error_of([] { parse_too_long("cut"); }), ErrorKind::usage, {"cut", "truncate, skip or stop"});
  EXPECT_EQ(parse_too_long("skip"), TooLong::skip);
}

}  // namespace
}  // namespace ingot::data
