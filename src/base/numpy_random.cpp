#include "base/numpy_random.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_set>

namespace ingot {

namespace {

// The eight words that SeedSequence(seed).generate_state returns for a PCG64.
std::array<uint32_t, 8> seed_words(uint64_t seed) {
  uint32_t hash = 0x43b0d7e5;
  const auto scramble = [&hash](uint32_t value, uint32_t factor) {
    value ^= hash;
    hash *= factor;
    value *= hash;
    return value ^ value >> 16;
  };
  std::array<uint32_t, 4> pool = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (uint32_t& word : pool) word = scramble(word, 0x931e8875);
  for (size_t from = 0; from < pool.size(); ++from) {
    for (size_t to = 0; to < pool.size(); ++to) {
      if (from == to) continue;
      const uint32_t mixed = 0xca01f9dd * pool[to] - 0x4973f715 * scramble(pool[from], 0x931e8875);
      pool[to] = mixed ^ mixed >> 16;
    }
  }
  hash = 0x8b51f9dd;
  std::array<uint32_t, 8> words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = scramble(pool[i % pool.size()], 0x58f38ded);
  return words;
}

// a b = high 2^64 + low.
std::pair<uint64_t, uint64_t> product(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & UINT32_MAX, a1 = a >> 32, b0 = b & UINT32_MAX, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  const uint64_t carry = a0 * b1 + (middle & UINT32_MAX);
  return {a1 * b1 + (middle >> 32) + (carry >> 32), a * b};
}

}  // namespace

NumpyRandomState::NumpyRandomState(uint32_t seed) {
  words_[0] = seed;
  for (size_t i = 1; i < num_words; ++i) {
    words_[i] = 1812433253U * (words_[i - 1] ^ words_[i - 1] >> 30) + static_cast<uint32_t>(i);
  }
}

void NumpyRandomState::refill() {
  for (size_t i = 0; i < num_words; ++i) {
    const uint32_t joined = (words_[i] & 0x80000000U) | (words_[(i + 1) % num_words] & 0x7fffffffU);
    words_[i] = words_[(i + 397) % num_words] ^ joined >> 1 ^ ((joined & 1) != 0 ? 0x9908b0dfU : 0);
  }
  used_ = 0;
}

uint32_t NumpyRandomState::next_u32() {
  if (used_ == num_words) refill();
  uint32_t word = words_[used_++];
  word ^= word >> 11;
  word ^= word << 7 & 0x9d2c5680U;
  word ^= word << 15 & 0xefc60000U;
  return word ^ word >> 18;
}

uint64_t NumpyRandomState::next_u64() {
  const uint64_t high = next_u32();
  return high << 32 | next_u32();
}

NumpyGenerator::NumpyGenerator(uint64_t seed) {
  const std::array<uint32_t, 8> words = seed_words(seed);
  const auto pair = [&words](size_t i) { return uint64_t{words[i]} | uint64_t{words[i + 1]} << 32; };
  const Word128 start = {pair(0), pair(2)}, sequence = {pair(4), pair(6)};
  increment_ = {sequence.high << 1 | sequence.low >> 63, sequence.low << 1 | 1};
  step();
  state_ = add(state_, start);
  step();
}

NumpyGenerator::Word128 NumpyGenerator::add(Word128 a, Word128 b) {
  const uint64_t low = a.low + b.low;
  return {a.high + b.high + (low < a.low ? 1 : 0), low};
}

NumpyGenerator::Word128 NumpyGenerator::multiply(Word128 a, Word128 b) {
  const auto [high, low] = product(a.low, b.low);
  return {high + a.high * b.low + a.low * b.high, low};
}

void NumpyGenerator::step() {
  state_ = add(multiply(state_, {2549297995355413924U, 4865540595714422341U}), increment_);
}

uint64_t NumpyGenerator::next_u64() {
  step();
  return std::rotr(state_.high ^ state_.low, static_cast<int>(state_.high >> 58));
}

uint32_t NumpyGenerator::next_u32() {
  has_kept_ = !has_kept_;
  if (!has_kept_) return kept_;
  const uint64_t both = next_u64();
  kept_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

double NumpyGenerator::random() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

uint64_t NumpyGenerator::bounded(uint64_t largest) {
  if (largest == 0) return 0;
  if (largest == UINT32_MAX) return next_u32();
  if (largest == UINT64_MAX) return next_u64();
  const uint64_t size = largest + 1;
  if (largest < UINT32_MAX) {
    const uint64_t smallest = (uint64_t{1} << 32) % size;
    for (;;) {
      const uint64_t scaled = next_u32() * size;
      if ((scaled & UINT32_MAX) >= smallest) return scaled >> 32;
    }
  }
  const uint64_t smallest = (0 - size) % size;  // 2^64 mod size
  for (;;) {
    const auto [high, low] = product(next_u64(), size);
    if (low >= smallest) return high;
  }
}

int64_t NumpyGenerator::integers(int64_t low, int64_t high) {
  const uint64_t offset = static_cast<uint64_t>(low);
  return static_cast<int64_t>(offset + bounded(static_cast<uint64_t>(high) - offset - 1));
}

std::vector<int64_t> NumpyGenerator::choice(int64_t n, int64_t count) {
  std::vector<int64_t> chosen;
  if (n > 10000 && count > n / 50) {  // the tail of a shuffle
    chosen.resize(static_cast<size_t>(n));
    std::iota(chosen.begin(), chosen.end(), 0);
    for (int64_t i = n - 1; i >= std::max<int64_t>(n - count, 1); --i) {
      std::swap(chosen[static_cast<size_t>(i)], chosen[bounded(static_cast<uint64_t>(i))]);
    }
    chosen.erase(chosen.begin(), chosen.end() - count);
    return chosen;
  }
  std::unordered_set<int64_t> taken;  // Floyd's method (Bentley and Floyd, CACM 30(9), 1987)
  for (int64_t last = n - count; last < n; ++last) {
    int64_t value = static_cast<int64_t>(bounded(static_cast<uint64_t>(last)));
    if (!taken.insert(value).second) taken.insert(value = last);
    chosen.push_back(value);
  }
  for (size_t i = chosen.size(); i > 1; --i) std::swap(chosen[i - 1], chosen[bounded(i - 1)]);
  return chosen;
}

}  // namespace ingot
