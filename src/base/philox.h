// Philox4x32-10: a counter-based random number generator. Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
// as 1, 2, 3", SC'11. A block of four words is a pure function of a 128-bit counter and a 64-bit key, so a random
// number depends on its purpose (seed, step, sample, position, layer), not on who draws it or when.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <utility>

namespace ingot {

struct Philox {
  static constexpr int num_rounds = 10;

  // In place on plain words, for SIMD code: a loop over lanes that holds each word in an array vectorises.
  static constexpr void encrypt(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t k0, uint32_t k1) {
    for (int round = 0; round < num_rounds; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9;  // Weyl sequence: the golden ratio
      k1 += 0xBB67AE85;  // and sqrt(3) - 1
    }
  }

  static constexpr std::array<uint32_t, 4> block(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
    encrypt(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
    return counter;
  }

  // [0, 1): a multiple of 2^-24, exact in fp32.
  static constexpr float uniform(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }
  // (0, 1]: a multiple of 2^-24, exact in fp32; safe under a logarithm.
  static constexpr float uniform_positive(uint32_t word) { return static_cast<float>((word >> 8) + 1) * 0x1p-24F; }

  // Two independent standard normal numbers from two words, by Box and Muller in double. At most 6.67 in magnitude.
  static std::pair<double, double> normal(uint32_t a, uint32_t b) {
    const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(a) + 1.0) * 0x1p-32));
    const double angle = 2.0 * std::numbers::pi * (static_cast<double>(b) * 0x1p-32);
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }
};

// A sequence of random numbers that a seed and any number of stream ids identify. Different ids give unrelated
// sequences: each id is mixed into 128 bits of state by one Philox block. A value; a copy starts at the same position.
class RandomStream {
 public:
  template <std::integral... Ids>
  constexpr explicit RandomStream(uint64_t seed, Ids... ids)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {
    (mix(static_cast<uint64_t>(ids)), ...);
  }

  constexpr uint32_t next_u32() {
    if (used_ == 4) {
      words_ = Philox::block(
          {static_cast<uint32_t>(position_), static_cast<uint32_t>(position_ >> 32), name_[0], name_[1]}, key_);
      ++position_;
      used_ = 0;
    }
    return words_[used_++];
  }

  constexpr uint64_t next_u64() {
    const uint64_t low = next_u32();
    return low | uint64_t{next_u32()} << 32;
  }

  // [0, 1), a multiple of 2^-24.
  constexpr float uniform() { return Philox::uniform(next_u32()); }
  // [0, 1), a multiple of 2^-53.
  constexpr double uniform_double() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

  // Standard normal. Draws two words for two numbers and keeps the second one.
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const uint32_t a = next_u32();
    const auto [first, second] = Philox::normal(a, next_u32());
    spare_ = second;
    has_spare_ = true;
    return first;
  }

  // Uniform in [0, n), without bias: values from the incomplete last group of n are drawn again. REQUIRES n >= 1.
  constexpr uint64_t below(uint64_t n) {
    const uint64_t smallest = (uint64_t{0} - n) % n;  // 2^64 mod n
    for (;;) {
      const uint64_t word = next_u64();
      if (word >= smallest) return word % n;
    }
  }

  // Fisher-Yates from the back. Unlike std::shuffle, the same on every standard library.
  template <class T>
  constexpr void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[static_cast<size_t>(below(i))]);
  }

 private:
  constexpr void mix(uint64_t id) {
    const auto out =
        Philox::block({static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), name_[0], name_[1]}, key_);
    key_ = {out[0], out[1]};
    name_ = {out[2], out[3]};
  }

  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 2> name_{};
  uint64_t position_ = 0;
  std::array<uint32_t, 4> words_{};
  size_t used_ = 4;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace ingot
