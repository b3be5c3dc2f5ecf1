#include "infer/page_pool.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::infer {

namespace {

// The finaliser of SplitMix64: good enough for a hash table whose entries are compared anyway.
uint64_t mixed(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9U;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

uint64_t hash_of(int64_t parent, std::span<const int32_t> ids, const PrefixOwner& owner) {
  uint64_t hash = mixed(static_cast<uint64_t>(parent) + 1);
  hash = mixed(hash ^ owner.adapter);
  hash = mixed(hash ^ owner.salt);
  for (const int32_t id : ids) hash = mixed(hash ^ static_cast<uint32_t>(id));
  return hash;
}

}  // namespace

PagePool::PagePool(int64_t pages, int64_t page_tokens, bool caching)
    : pages_(pages), page_tokens_(page_tokens), caching_(caching) {
  if (pages < 1 || page_tokens < 1) {
    throw_error(ErrorKind::internal, "invalid KV cache size: {} pages of {} tokens", pages, page_tokens);
  }
  for (int64_t page = pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
  cached_of_page_.resize(static_cast<size_t>(pages));
}

int64_t PagePool::look_up(int64_t parent, std::span<const int32_t> ids, const PrefixOwner& owner) const {
  const auto [begin, end] = by_hash_.equal_range(hash_of(parent, ids, owner));
  for (auto each = begin; each != end; ++each) {
    const CachedPage& cached_page = cached_.at(each->second);
    if (cached_page.parent == parent && cached_page.owner == owner && std::ranges::equal(cached_page.ids, ids))
      return each->second;
  }
  return 0;
}

// Adds a reference to a cached page. The first reference also adds one to its parent, and so on.
void PagePool::retain(int64_t id) {
  while (id != 0) {
    CachedPage& cached_page = cached_.at(id);
    if (cached_page.references++ > 0) return;
    --idle_;
    if (cached_page.children == 0) leaves_.erase(cached_page.used);
    id = cached_page.parent;
  }
}

void PagePool::release_page(int64_t id) {
  while (id != 0) {
    CachedPage& cached_page = cached_.at(id);
    if (--cached_page.references > 0) return;
    ++idle_;
    cached_page.used = ++clock_;
    update_evictable(id);
    id = cached_page.parent;
  }
}

// Makes the page evictable if it is an unreferenced leaf.
void PagePool::update_evictable(int64_t id) {
  const CachedPage& cached_page = cached_.at(id);
  if (cached_page.references == 0 && cached_page.children == 0) leaves_.emplace(cached_page.used, id);
}

void PagePool::evict_one() {
  const int64_t id = leaves_.begin()->second;
  leaves_.erase(leaves_.begin());
  const CachedPage cached_page = std::move(cached_.at(id));
  cached_.erase(id);
  const auto [begin, end] = by_hash_.equal_range(cached_page.hash);
  by_hash_.erase(std::find_if(begin, end, [&](const auto& each) { return each.second == id; }));
  cached_of_page_[static_cast<size_t>(cached_page.page)] = 0;
  free_.push_back(cached_page.page);
  --idle_;
  if (cached_page.parent == 0) return;
  --cached_.at(cached_page.parent).children;
  update_evictable(cached_page.parent);
}

int64_t PagePool::find(PageTable& table, std::span<const int32_t> ids, const PrefixOwner& owner) {
  const auto size = static_cast<size_t>(page_tokens_);
  int64_t last = 0;
  while (caching_ && (table.pages.size() + 1) * size < ids.size()) {
    const int64_t next = look_up(last, ids.subspan(table.pages.size() * size, size), owner);
    if (next == 0) break;
    table.pages.push_back(cached_.at(next).page);
    last = next;
  }
  retain(last);
  table.chain = last;
  table.shared = std::ssize(table.pages);
  return table.shared * page_tokens_;
}

bool PagePool::extend(PageTable& table, int64_t tokens) {
  const int64_t wanted = pages_for(tokens) - std::ssize(table.pages);
  if (wanted > free_pages()) return false;
  for (int64_t i = 0; i < wanted; ++i) {
    if (free_.empty()) evict_one();
    table.pages.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void PagePool::cache(PageTable& table, std::span<const int32_t> ids, int64_t cached, const PrefixOwner& owner) {
  const auto size = static_cast<size_t>(page_tokens_);
  while (caching_ && (table.shared + 1) * page_tokens_ <= cached) {
    const std::span<const int32_t> page_ids = ids.subspan(static_cast<size_t>(table.shared) * size, size);
    int64_t id = look_up(table.chain, page_ids, owner);
    if (id == 0) {
      id = ++last_id_;
      CachedPage cached_page;
      cached_page.parent = table.chain;
      cached_page.owner = owner;
      cached_page.ids.assign(page_ids.begin(), page_ids.end());
      cached_page.page = table.pages[static_cast<size_t>(table.shared)];
      cached_page.hash = hash_of(cached_page.parent, page_ids, owner);
      cached_page.used = ++clock_;
      if (cached_page.parent != 0)
        ++cached_.at(cached_page.parent).children;  // the table references the parent, so it is not in leaves_
      by_hash_.emplace(cached_page.hash, id);
      cached_of_page_[static_cast<size_t>(cached_page.page)] = id;
      cached_.emplace(id, std::move(cached_page));
      ++idle_;
      update_evictable(id);
    } else {
      // An equal page is cached already: the table continues with that one and frees its own copy.
      int32_t& page = table.pages[static_cast<size_t>(table.shared)];
      free_.push_back(page);
      page = cached_.at(id).page;
    }
    retain(id);
    release_page(table.chain);
    table.chain = id;
    ++table.shared;
  }
}

void PagePool::release(PageTable& table) {
  for (auto page = table.pages.rbegin(); page != table.pages.rend(); ++page) {
    if (cached_of_page_[static_cast<size_t>(*page)] == 0) free_.push_back(*page);
  }
  release_page(table.chain);
  table = {};
}

}  // namespace ingot::infer
