#include "infer/page_pool.h"

#include "base/error.h"

namespace ingot::infer {

PagePool::PagePool(int64_t pages, int64_t page_tokens) : pages_(pages), page_tokens_(page_tokens) {
  if (pages < 1 || page_tokens < 1) {
    throw_error(ErrorKind::internal, "a KV cache of {} pages of {} tokens", pages, page_tokens);
  }
  for (int64_t page = pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

bool PagePool::extend(std::vector<int32_t>& table, int64_t tokens) {
  const int64_t wanted = pages_for(tokens) - static_cast<int64_t>(table.size());
  if (wanted > free_pages()) return false;
  for (int64_t i = 0; i < wanted; ++i) {
    table.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void PagePool::release(std::vector<int32_t>& table) {
  while (!table.empty()) {
    free_.push_back(table.back());
    table.pop_back();
  }
}

}  // namespace ingot::infer
