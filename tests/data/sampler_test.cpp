#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "tests/data/temp_folder.h"

namespace ingot::data {
namespace {

std::vector<int64_t> values(const Permutation& order) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < order.size(); ++i) all.push_back(order(i));
  return all;
}

TEST(Permutation, IsABijectionForEverySize) {
  for (int64_t n = 1; n <= 600; ++n) {
    std::vector<int64_t> all = values(Permutation(n, 11, static_cast<uint64_t>(n)));
    std::sort(all.begin(), all.end());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], i) << n;
  }
}

TEST(Permutation, OfLargeDomainsStaysInsideAndDoesNotRepeat) {
  const int64_t n = (int64_t{1} << 40) + 12345;
  const Permutation order(n, 5, 0);
  std::vector<int64_t> some;
  for (int64_t i = 0; i < 2000; ++i) {
    some.push_back(order(n - 1 - i));
    ASSERT_GE(some.back(), 0);
    ASSERT_LT(some.back(), n);
  }
  std::sort(some.begin(), some.end());
  EXPECT_EQ(std::adjacent_find(some.begin(), some.end()), some.end());
}

// All 24 orders of four elements are about equally frequent: for 23 degrees of freedom chi-square is below 59 except
// with probability 1/40,000. The seeds are fixed.
TEST(Permutation, StreamsReachAllOrdersEvenly) {
  std::map<std::vector<int64_t>, int> seen;
  constexpr int num_streams = 4800;
  for (uint64_t stream = 0; stream < num_streams; ++stream) ++seen[values(Permutation(4, 3, stream))];
  ASSERT_EQ(seen.size(), 24U);
  double chi_square = 0;
  for (const auto& [order, count] : seen) chi_square += (count - 200.0) * (count - 200.0) / 200.0;
  EXPECT_LT(chi_square, 59);
}

// Neighbours are separated: among 10,000 elements about two pairs (i, i + 1) are expected to map to (j, j + 1) or (j +
// 1, j).
TEST(Permutation, SeparatesNeighbours) {
  const std::vector<int64_t> all = values(Permutation(10000, 0, 0));
  int neighbours = 0;
  for (size_t i = 0; i + 1 < all.size(); ++i) neighbours += std::abs(all[i] - all[i + 1]) == 1 ? 1 : 0;
  EXPECT_LE(neighbours, 12);
}

TEST(Sampler, EverySequenceComesOnceAnEpochAcrossSteps) {
  for (const int64_t n : {1, 2, 5, 64, 97}) {
    for (const int64_t batch : {1, 3, 8, 100}) {
      const Sampler sampler(n, 42, batch);
      std::vector<int64_t> order;
      for (int64_t step = 0; static_cast<int64_t>(order.size()) < 3 * n; ++step) {
        const auto samples = sampler.step_samples(step);
        ASSERT_EQ(static_cast<int64_t>(samples.size()), batch);
        EXPECT_EQ(sampler.epoch_of(step), static_cast<int64_t>(order.size()) / n);
        order.insert(order.end(), samples.begin(), samples.end());
      }
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<int64_t> part(order.begin() + epoch * n, order.begin() + (epoch + 1) * n);
        std::sort(part.begin(), part.end());
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(part[static_cast<size_t>(i)], i);
      }
      // The order is one of sequences, not of batches: another batch size cuts the same order.
      const Sampler single(n, 42, 1);
      for (size_t i = 0; i < order.size(); ++i) {
        ASSERT_EQ(single.step_samples(static_cast<int64_t>(i))[0], order[i]);
      }
    }
  }
}

TEST(Sampler, DoesNotDependOnEarlierQueries) {
  const Sampler whole(50, 7, 4);
  std::vector<std::vector<int64_t>> forward;
  for (int64_t step = 0; step < 40; ++step) forward.push_back(whole.step_samples(step));
  for (int64_t step = 39; step >= 0; --step) {
    EXPECT_EQ(Sampler(50, 7, 4).step_samples(step), forward[static_cast<size_t>(step)]);
  }
}

TEST(Sampler, EpochsAndSeedsDiffer) {
  const Sampler a(100, 1, 100), b(100, 2, 100), far(100, uint64_t{1} << 40 | 1, 100);
  EXPECT_NE(a.step_samples(0), a.step_samples(1));
  EXPECT_NE(a.step_samples(0), b.step_samples(0));
  EXPECT_NE(a.step_samples(0), far.step_samples(0));
}

TEST(Sampler, StepsForEpochsRoundsUp) {
  EXPECT_EQ(Sampler(10, 0, 4).steps_for_epochs(1), 3);
  EXPECT_EQ(Sampler(10, 0, 5).steps_for_epochs(2), 4);
  EXPECT_EQ(Sampler(10, 0, 4).steps_for_epochs(0.05), 1);
  EXPECT_EQ(Sampler(10, 0, 4).steps_for_epochs(0.5), 2);
}

TEST(Sampler, RejectsInvalidSettings) {
  expect_error(error_of([] { Sampler(0, 0, 1); }), ErrorKind::usage, {"0 sequences"});
  expect_error(error_of([] { Sampler(1, 0, 0); }), ErrorKind::usage, {"batch.global"});
  expect_error(error_of([] { Sampler(1, 0, 1).step_samples(-1); }), ErrorKind::usage, {"-1"});
  expect_error(error_of([] { Sampler(1, 0, 1).steps_for_epochs(0); }), ErrorKind::usage, {"epochs"});
}

// The order of a run must not change when it is resumed with a newer program. The values come from a short Python
// program written from the comment of Permutation and the Philox paper. The last line crosses an epoch boundary.
TEST(Sampler, OrderIsFrozen) {
  EXPECT_EQ(Sampler(10, 1234, 10).step_samples(0), (std::vector<int64_t>{7, 5, 0, 2, 1, 6, 9, 8, 3, 4}));
  EXPECT_EQ(Sampler(10, 1234, 10).step_samples(1), (std::vector<int64_t>{0, 8, 7, 4, 9, 6, 2, 5, 1, 3}));
  EXPECT_EQ(Sampler(1000003, 0xdeadbeefcafe, 4).step_samples(250000),
            (std::vector<int64_t>{975637, 489604, 248551, 777822}));
}

}  // namespace
}  // namespace ingot::data
