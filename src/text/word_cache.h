// A bounded, lock-free cache from pre-tokens to their ids, shared by threads: an entry is written once, published with
// a single store, and never evicted.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace ingot::text {

class WordCache {
 public:
  WordCache() : entries_(std::make_unique<Entry[]>(num_entries)) {}
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  // Appends the ids of `word` and returns true; returns false if they are not cached.
  bool find(std::string_view word, std::vector<int32_t>& out) const {
    if (word.size() > max_word_bytes) return false;
    const Key key = key_of(word);
    const size_t first_slot = slot_of(key);
    for (size_t probe = 0; probe < max_probes; ++probe) {
      const Entry& entry = entries_[(first_slot + probe) % num_entries];
      const uint32_t state = entry.state.load(std::memory_order_acquire);
      if (state == empty) return false;
      if (state == being_written || entry.key != key) continue;
      const size_t num_ids = state - written;
      if (num_ids == 1) {
        out.push_back(entry.ids[0]);
      } else {
        out.insert(out.end(), entry.ids.data(), entry.ids.data() + num_ids);
      }
      return true;
    }
    return false;
  }

  // Long words and id lists are not cached. When all probed slots are occupied, the old entries stay: frequent words
  // occur early.
  void insert(std::string_view word, const int32_t* ids, size_t num_ids) {
    if (word.size() > max_word_bytes || num_ids > max_ids) return;
    const Key key = key_of(word);
    const size_t first_slot = slot_of(key);
    for (size_t probe = 0; probe < max_probes; ++probe) {
      Entry& entry = entries_[(first_slot + probe) % num_entries];
      uint32_t state = entry.state.load(std::memory_order_acquire);
      if (state == empty && entry.state.compare_exchange_strong(state, being_written, std::memory_order_acq_rel)) {
        entry.key = key;
        std::copy(ids, ids + num_ids, entry.ids.begin());
        entry.state.store(written + static_cast<uint32_t>(num_ids), std::memory_order_release);
        return;
      }
      if (state >= written && entry.key == key) return;
    }
  }

 private:
  static constexpr int bits = 17;
  static constexpr size_t num_entries = size_t{1} << bits;
  static constexpr size_t max_probes = 4;
  static constexpr size_t max_word_bytes = 23;
  static constexpr size_t max_ids = 9;  // chosen with max_word_bytes so that an entry fills a cache line

  // The bytes of a word, zero-padded, and its length in the last byte.
  using Key = std::array<uint64_t, 3>;

  enum State : uint32_t { empty, being_written, written };  // written + n: published, with n ids
  struct alignas(64) Entry {
    Key key{};
    std::atomic<uint32_t> state{empty};
    std::array<int32_t, max_ids> ids{};
  };
  static_assert(sizeof(Entry) == 64);

  // Uses overlapping loads of fixed size, none of which reads beyond the word.
  static Key key_of(std::string_view word) {
    const size_t size = word.size();
    const auto eight = [&](size_t at) {
      uint64_t value = 0;
      std::memcpy(&value, word.data() + at, 8);
      return value;
    };
    const auto four = [&](size_t at) {
      uint32_t value = 0;
      std::memcpy(&value, word.data() + at, 4);
      return uint64_t{value};
    };
    const auto one = [&](size_t at) { return uint64_t{static_cast<uint8_t>(word[at])} << 8 * at; };
    Key key{0, 0, uint64_t{size} << 56};
    if (size > 16) {
      key[0] = eight(0);
      key[1] = eight(8);
      key[2] |= eight(size - 8) >> 8 * (24 - size);
    } else if (size > 8) {
      key[0] = eight(0);
      key[1] = eight(size - 8) >> 8 * (16 - size);
    } else if (size >= 4) {
      key[0] = four(0) | four(size - 4) << 8 * (size - 4);
    } else if (size > 0) {
      key[0] = one(0) | one(size / 2) | one(size - 1);
    }
    return key;
  }

  // Multiplicative hashing; the upper bits depend on the whole key.
  static size_t slot_of(const Key& key) {
    constexpr uint64_t factor = 0x9E3779B97F4A7C15ULL;
    uint64_t hash = key[0] * factor + key[1] * 0xC2B2AE3D27D4EB4FULL + key[2] * 0x165667B19E3779F9ULL;
    hash = (hash ^ hash >> 32) * factor;
    return static_cast<size_t>(hash >> (64 - bits));
  }

  std::unique_ptr<Entry[]> entries_;
};

}  // namespace ingot::text
