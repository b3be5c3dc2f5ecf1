// Numbers of free pages of the KV cache. No tensors: what the scheduler reasons with.
#pragma once

#include <cstdint>
#include <vector>

namespace ingot::infer {

class PagePool {
 public:
  PagePool(int64_t pages, int64_t page_tokens);

  int64_t page_tokens() const { return page_tokens_; }
  int64_t pages() const { return pages_; }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t pages_for(int64_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }

  // Makes `table` long enough for `tokens` tokens. False, with nothing changed, when too few pages are free.
  bool extend(std::vector<int32_t>& table, int64_t tokens);
  // Gives all pages of the table back and empties it.
  void release(std::vector<int32_t>& table);

 private:
  int64_t pages_;
  int64_t page_tokens_;
  std::vector<int32_t> free_;  // taken from the back
};

}  // namespace ingot::infer
