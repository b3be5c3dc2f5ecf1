// A set of byte values.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace ingot::grammar {

struct ByteSet {
  std::array<uint64_t, 4> words{};

  static ByteSet of(uint8_t byte) { return range(byte, byte); }
  static ByteSet range(uint8_t first, uint8_t last) {
    ByteSet set;
    for (int b = first; b <= last; ++b) set.add(static_cast<uint8_t>(b));
    return set;
  }
  void add(uint8_t byte) { words[byte >> 6] |= uint64_t{1} << (byte & 63); }
  bool has(uint8_t byte) const { return (words[byte >> 6] >> (byte & 63) & 1) != 0; }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  int count() const {
    int count = 0;
    for (const uint64_t word : words) count += std::popcount(word);
    return count;
  }
  template <class Work>
  void for_each(Work work) const {
    for (size_t i = 0; i < words.size(); ++i) {
      for (uint64_t word = words[i]; word != 0; word &= word - 1) {
        work(static_cast<uint8_t>(64 * i + static_cast<size_t>(std::countr_zero(word))));
      }
    }
  }
  ByteSet operator|(const ByteSet& other) const {
    ByteSet set;
    for (size_t i = 0; i < words.size(); ++i) set.words[i] = words[i] | other.words[i];
    return set;
  }
  ByteSet operator&(const ByteSet& other) const {
    ByteSet set;
    for (size_t i = 0; i < words.size(); ++i) set.words[i] = words[i] & other.words[i];
    return set;
  }
  bool operator==(const ByteSet& other) const = default;
};

}  // namespace ingot::grammar
