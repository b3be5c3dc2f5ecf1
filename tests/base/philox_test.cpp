#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

namespace ingot {
namespace {

using Words = std::array<uint32_t, 4>;

// kat_vectors of Random123 (Salmon et al.), rows "philox4x32 10".
TEST(Philox, HasTheKnownAnswers) {
  EXPECT_EQ(Philox::block({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(Philox::block({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox::block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

static_assert(Philox::block({0, 0, 0, 0}, {0, 0})[0] == 0x6627e8d5, "usable at compile time");

TEST(Philox, UniformStaysInItsInterval) {
  EXPECT_EQ(Philox::uniform(0), 0.0F);
  EXPECT_LT(Philox::uniform(0xffffffff), 1.0F);
  EXPECT_GT(Philox::uniform_positive(0), 0.0F);
  EXPECT_EQ(Philox::uniform_positive(0xffffffff), 1.0F);
}

TEST(Philox, NormalIsFiniteAtTheEdges) {
  for (const uint32_t a : {0U, 1U, 0xffffffffU}) {
    for (const uint32_t b : {0U, 0x80000000U, 0xffffffffU}) {
      const auto [x, y] = Philox::normal(a, b);
      EXPECT_TRUE(std::isfinite(x) && std::isfinite(y)) << a << " " << b;
      EXPECT_LT(std::hypot(x, y), 6.67);
    }
  }
}

// The first four moments of 2^16 draws are each within six standard errors of the normal distribution's.
TEST(RandomStream, NormalHasTheRightMoments) {
  RandomStream stream(17, 3);
  const int n = 1 << 16;
  std::array<double, 5> moment{};
  for (int i = 0; i < n; ++i) {
    const double x = stream.normal();
    for (int p = 1; p <= 4; ++p) moment[static_cast<size_t>(p)] += std::pow(x, p) / n;
  }
  const double root = std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(moment[1], 0, 6 * 1 / root);
  EXPECT_NEAR(moment[2], 1, 6 * std::sqrt(2.0) / root);
  EXPECT_NEAR(moment[3], 0, 6 * std::sqrt(15.0) / root);
  EXPECT_NEAR(moment[4], 3, 6 * std::sqrt(96.0) / root);
}

TEST(RandomStream, StreamsOfDifferentIdsDifferAndAreReproducible) {
  std::set<uint64_t> first;
  size_t count = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    first.insert(RandomStream(seed).next_u64());
    ++count;
    for (int64_t a = 0; a < 8; ++a) {
      first.insert(RandomStream(seed, a).next_u64());
      ++count;
      for (int64_t b = 0; b < 8; ++b) {
        first.insert(RandomStream(seed, a, b).next_u64());
        ++count;
      }
    }
  }
  EXPECT_EQ(first.size(), count);
  RandomStream one(5, 6, 7);
  RandomStream two(5, 6, 7);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(one.next_u32(), two.next_u32());
}

// Without ids the stream is Philox itself: key = seed, counter = block number.
TEST(RandomStream, PlainSeedIsPhilox) {
  RandomStream stream(0x0123456789abcdefULL);
  for (uint32_t i = 0; i < 3; ++i) {
    for (const uint32_t word : Philox::block({i, 0, 0, 0}, {0x89abcdef, 0x01234567})) {
      EXPECT_EQ(stream.next_u32(), word);
    }
  }
}

TEST(RandomStream, BelowIsUniform) {
  RandomStream stream(1, 2);
  const uint64_t n = 6;
  std::array<int, 6> count{};
  const int draws = 60000;
  for (int i = 0; i < draws; ++i) ++count.at(static_cast<size_t>(stream.below(n)));
  double chi_square = 0;
  for (const int c : count) chi_square += std::pow(c - draws / 6.0, 2) / (draws / 6.0);
  EXPECT_LT(chi_square, 35);  // 5 degrees of freedom: a chance of 1.5e-6
  EXPECT_EQ(stream.below(1), 0U);
  const uint64_t large = (uint64_t{1} << 63) + 1;  // nearly half of all words are rejected
  for (int i = 0; i < 100; ++i) EXPECT_LT(stream.below(large), large);
}

TEST(RandomStream, ShuffleIsAPermutation) {
  std::vector<int> values(100);
  std::iota(values.begin(), values.end(), 0);
  RandomStream(9).shuffle(std::span<int>(values));
  EXPECT_FALSE(std::is_sorted(values.begin(), values.end()));
  EXPECT_EQ(std::set<int>(values.begin(), values.end()).size(), 100U);
}

}  // namespace
}  // namespace ingot
