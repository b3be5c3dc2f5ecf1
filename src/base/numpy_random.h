// NumPy's random number generators, bit for bit, to reproduce the sample order of programs that shuffle with them.
//
// NumpyRandomState is numpy.random.RandomState(seed), whose numbers NumPy has frozen (NEP 19): MT19937
// (Matsumoto and Nishimura, ACM TOMACS 8(1), 1998) seeded by its own init_genrand. NumpyGenerator is
// numpy.random.default_rng(seed): PCG64 (O'Neill, HMC-CS-2014-0905) seeded through SeedSequence.
// Both are values; a copy starts at the same position of the sequence.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ingot {

// Functions that both generators share (CRTP). `Generator` provides next_u32 and next_u64.
template <class Generator>
class NumpyRandomBase {
 public:
  // Uniform in [0, largest], by masked rejection. For 0, no random number is drawn.
  uint64_t interval(uint64_t largest) {
    uint64_t mask = largest;
    for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
    if (largest == 0) return 0;
    for (;;) {
      const uint64_t value = (largest <= UINT32_MAX ? self().next_u32() : self().next_u64()) & mask;
      if (value <= largest) return value;
    }
  }

  // As NumPy's `shuffle` of an array or a list.
  template <class T>
  void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[static_cast<size_t>(interval(i - 1))]);
  }

 private:
  friend Generator;
  NumpyRandomBase() = default;
  Generator& self() { return static_cast<Generator&>(*this); }
};

class NumpyRandomState : public NumpyRandomBase<NumpyRandomState> {
 public:
  explicit NumpyRandomState(uint32_t seed);

  uint32_t next_u32();
  uint64_t next_u64();  // two words, the high one first

 private:
  static constexpr size_t num_words = 624;
  void refill();

  std::array<uint32_t, num_words> words_;
  size_t used_ = num_words;
};

class NumpyGenerator : public NumpyRandomBase<NumpyGenerator> {
 public:
  explicit NumpyGenerator(uint64_t seed);

  // The low half of a 64-bit number; the high half is kept for the next call of next_u32.
  uint32_t next_u32();
  uint64_t next_u64();
  double random();                         // [0, 1), a multiple of 2^-53
  double uniform(double low, double high)  // [low, high)
  {
    return low + (high - low) * random();
  }
  // Uniform in [low, high). REQUIRES low < high.
  int64_t integers(int64_t low, int64_t high);
  // `count` distinct values of 0 .. n - 1 in random order: choice(n, count, replace=False). REQUIRES 0 <= count <= n.
  std::vector<int64_t> choice(int64_t n, int64_t count);

 private:
  struct Word128 {
    uint64_t high = 0, low = 0;
  };
  static Word128 add(Word128 a, Word128 b);
  static Word128 multiply(Word128 a, Word128 b);
  void step();
  uint64_t bounded(uint64_t largest);  // uniform in [0, largest], by Lemire's method (TOMACS 29(1), 2019)

  Word128 state_, increment_;
  uint32_t kept_ = 0;
  bool has_kept_ = false;
};

}  // namespace ingot
