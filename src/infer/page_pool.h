// The pages of the KV cache: which are free, and which are in the prefix cache. Bookkeeping for the scheduler, without
// tensors.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

namespace ingot::infer {

// Cached keys and values are shared only within the same adapter and salt.
struct PrefixOwner {
  uint64_t adapter = 0;
  uint64_t salt = 0;
  bool operator==(const PrefixOwner&) const = default;
};

// The page table of one sequence: first a chain of cached pages, then pages of its own. The sequence references the
// chain's last page, which references those before it.
struct PageTable {
  std::vector<int32_t> pages;
  int64_t chain = 0;   // id of the cached page that it references, 0: none
  int64_t shared = 0;  // number of leading full pages, which are those of the chain
};

class PagePool {
 public:
  // `caching`: full pages stay in the prefix cache after the last sequence has released them, until they are evicted.
  PagePool(int64_t pages, int64_t page_tokens, bool caching = false);

  int64_t page_tokens() const { return page_tokens_; }
  int64_t pages() const { return pages_; }
  // Pages that `extend` can hand out, including unreferenced cached pages.
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()) + idle_; }
  int64_t pages_for(int64_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }

  // Fills an empty table with the longest cached prefix of `ids`, in whole pages and at most ids.size() - 1 tokens, so
  // that a token is left to compute. Returns the number of tokens in these pages.
  int64_t find(PageTable& table, std::span<const int32_t> ids, const PrefixOwner& owner);
  // Extends `table` to hold `tokens` tokens. False, with nothing changed, when too few pages are free.
  bool extend(PageTable& table, int64_t tokens);
  // The first `cached` tokens of `ids` are in the table's pages: adds the full ones to the prefix cache.
  void cache(PageTable& table, std::span<const int32_t> ids, int64_t cached, const PrefixOwner& owner);
  // Releases all pages of the table and empties it.
  void release(PageTable& table);

 private:
  // A page in the prefix cache, which follows its parent. Matched by parent, owner and tokens, not by its hash alone.
  struct CachedPage {
    int64_t parent = 0;
    PrefixOwner owner;
    std::vector<int32_t> ids;
    int32_t page = 0;
    uint64_t hash = 0;
    int64_t references = 0;  // sequences whose chain ends here, and referenced child pages
    int64_t children = 0;    // cached pages that follow it
    uint64_t used = 0;       // `clock_` when it was released last; its key in leaves_ if it is there
  };

  int64_t look_up(int64_t parent, std::span<const int32_t> ids, const PrefixOwner& owner) const;
  void retain(int64_t cached_page);
  void release_page(int64_t cached_page);
  void update_evictable(int64_t cached_page);
  void evict_one();

  int64_t pages_;
  int64_t page_tokens_;
  bool caching_;
  std::vector<int32_t> free_;  // taken from the back
  std::unordered_map<int64_t, CachedPage> cached_;
  std::unordered_multimap<uint64_t, int64_t> by_hash_;
  std::map<uint64_t, int64_t> leaves_;   // eviction order: unreferenced pages without children, by `used`
  std::vector<int64_t> cached_of_page_;  // id of the cached page, by page; 0: none
  int64_t idle_ = 0;                     // unreferenced cached pages
  int64_t last_id_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace ingot::infer
