// The pages of the KV cache: which are free, and which hold the beginnings of texts that may come again. No tensors:
// what the scheduler reasons with.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

namespace ingot::infer {

// Whose keys and values may be shared: of the same adapter and salt.
struct PrefixOwner {
  uint64_t adapter = 0;
  uint64_t salt = 0;
  bool operator==(const PrefixOwner&) const = default;
};

// Pages of one sequence. A page is its own or one of a kept chain; those of the chain come first, and the sequence
// holds the chain's last page, which holds those before it.
struct PageTable {
  std::vector<int32_t> pages;
  int64_t chain = 0;   // the kept page that it holds, 0: none
  int64_t shared = 0;  // so many full pages, from the first on, are in the chain or equal to it
};

class PagePool {
 public:
  // `keeping`: full pages stay, when nobody has them any more, until their place is needed.
  PagePool(int64_t pages, int64_t page_tokens, bool keeping = false);

  int64_t page_tokens() const { return page_tokens_; }
  int64_t pages() const { return pages_; }
  // Pages that `extend` could give: those kept for nobody, too.
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()) + idle_; }
  int64_t pages_for(int64_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }

  // Gives an empty table the longest kept beginning of `ids`, in whole pages and at most ids.size() - 1 tokens: a last
  // token is left to compute. The number of its tokens.
  int64_t find(PageTable& table, std::span<const int32_t> ids, const PrefixOwner& owner);
  // Makes `table` long enough for `tokens` tokens. False, with nothing changed, when too few pages are free.
  bool extend(PageTable& table, int64_t tokens);
  // The first `cached` of ids are in the table's pages: full ones are kept from now on.
  void keep(PageTable& table, std::span<const int32_t> ids, int64_t cached, const PrefixOwner& owner);
  // Gives all pages of the table back and empties it.
  void release(PageTable& table);

 private:
  // A kept page, behind its parent's tokens. Verified by these, not by its hash.
  struct Kept {
    int64_t parent = 0;
    PrefixOwner owner;
    std::vector<int32_t> ids;
    int32_t page = 0;
    uint64_t hash = 0;
    int64_t holders = 0;   // sequences that hold it, and kept pages behind it that are held
    int64_t children = 0;  // kept pages behind it
    uint64_t used = 0;     // when it was held last; its key in leaves_ when it is there
  };

  int64_t look_up(int64_t parent, std::span<const int32_t> ids, const PrefixOwner& owner) const;
  void hold(int64_t kept);
  void let_go(int64_t kept);
  void consider(int64_t kept);
  void evict_one();

  int64_t pages_;
  int64_t page_tokens_;
  bool keeping_;
  std::vector<int32_t> free_;  // taken from the back
  std::unordered_map<int64_t, Kept> kept_;
  std::unordered_multimap<uint64_t, int64_t> by_hash_;
  std::map<uint64_t, int64_t> leaves_;  // held by nobody, with nothing behind them: by when they were used
  std::vector<int64_t> kept_of_page_;   // 0: none
  int64_t idle_ = 0;                    // kept pages that nobody holds
  int64_t last_name_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace ingot::infer
