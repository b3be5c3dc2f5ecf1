// A bounded cache from pre-tokens to their ids, shared by threads without locks: entries are made once, published with
// one store, and stay as long as the cache.
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
  WordCache() : slots_(num_slots) {}
  ~WordCache() {
    for (const auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
  }
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  // Appends the ids of `word` and returns true, or returns false when they are not known.
  bool find(std::string_view word, std::vector<int32_t>& out) const {
    if (word.size() > max_word_bytes) return false;
    const uint64_t hash = hash_of(word);
    for (size_t probe = 0; probe < max_probes; ++probe) {
      const Entry* entry = slots_[(hash + probe) % num_slots].load(std::memory_order_acquire);
      if (entry == nullptr) return false;
      if (!entry->is(hash, word)) continue;
      out.insert(out.end(), entry->ids.data(), entry->ids.data() + entry->num_ids);
      return true;
    }
    return false;
  }

  // Words and lists that are long are not kept, and where all places are taken the old entries stay: frequent words
  // come early.
  void insert(std::string_view word, const int32_t* ids, size_t num_ids) {
    if (word.size() > max_word_bytes || num_ids > max_ids) return;
    const uint64_t hash = hash_of(word);
    std::unique_ptr<Entry> made;
    for (size_t probe = 0; probe < max_probes; ++probe) {
      std::atomic<const Entry*>& slot = slots_[(hash + probe) % num_slots];
      const Entry* entry = slot.load(std::memory_order_acquire);
      if (entry == nullptr) {
        if (!made) made = std::make_unique<Entry>(hash, word, ids, num_ids);
        if (slot.compare_exchange_strong(entry, made.get(), std::memory_order_acq_rel)) {
          static_cast<void>(made.release());  // the slot owns it now
          return;
        }
      }
      if (entry->is(hash, word)) return;
    }
  }

 private:
  static constexpr size_t num_slots = 1 << 16;
  static constexpr size_t max_probes = 8;
  static constexpr size_t max_word_bytes = 22;  // with max_ids, an entry is a cache line
  static constexpr size_t max_ids = 8;

  struct alignas(64) Entry {
    Entry(uint64_t hash_value, std::string_view text, const int32_t* first, size_t count)
        : hash(hash_value), size(static_cast<uint8_t>(text.size())), num_ids(static_cast<uint8_t>(count)) {
      std::copy(text.begin(), text.end(), word.begin());
      std::copy(first, first + count, ids.begin());
    }
    bool is(uint64_t other_hash, std::string_view text) const {
      return hash == other_hash && size == text.size() && std::memcmp(word.data(), text.data(), size) == 0;
    }
    uint64_t hash;
    uint8_t size;
    uint8_t num_ids;
    std::array<char, max_word_bytes> word{};
    std::array<int32_t, max_ids> ids{};
  };

  // Multiplies by an odd constant for every 8 bytes, and folds the upper half in.
  static uint64_t hash_of(std::string_view word) {
    constexpr uint64_t factor = 0x9E3779B97F4A7C15ULL;
    uint64_t hash = word.size() * factor;
    for (size_t at = 0; at < word.size(); at += 8) {
      uint64_t part = 0;
      std::memcpy(&part, word.data() + at, std::min<size_t>(8, word.size() - at));
      hash = (hash ^ part) * factor;
      hash ^= hash >> 32;
    }
    return hash;
  }

  std::vector<std::atomic<const Entry*>> slots_;
};

}  // namespace ingot::text
