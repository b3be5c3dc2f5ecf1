#include "infer/page_pool.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::infer {

namespace {

// Mixes well enough for a table whose entries are compared anyway (the finaliser of SplitMix64).
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

PagePool::PagePool(int64_t pages, int64_t page_tokens, bool keeping)
    : pages_(pages), page_tokens_(page_tokens), keeping_(keeping) {
  if (pages < 1 || page_tokens < 1) {
    throw_error(ErrorKind::internal, "a KV cache of {} pages of {} tokens", pages, page_tokens);
  }
  for (int64_t page = pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
  kept_of_page_.resize(static_cast<size_t>(pages));
}

int64_t PagePool::look_up(int64_t parent, std::span<const int32_t> ids, const PrefixOwner& owner) const {
  const auto [begin, end] = by_hash_.equal_range(hash_of(parent, ids, owner));
  for (auto each = begin; each != end; ++each) {
    const Kept& kept = kept_.at(each->second);
    if (kept.parent == parent && kept.owner == owner && std::ranges::equal(kept.ids, ids)) return each->second;
  }
  return 0;
}

// One more holder; with the first one its parent has one more, and so on.
void PagePool::hold(int64_t name) {
  while (name != 0) {
    Kept& kept = kept_.at(name);
    if (kept.holders++ > 0) return;
    --idle_;
    if (kept.children == 0) leaves_.erase(kept.used);
    name = kept.parent;
  }
}

void PagePool::let_go(int64_t name) {
  while (name != 0) {
    Kept& kept = kept_.at(name);
    if (--kept.holders > 0) return;
    ++idle_;
    kept.used = ++clock_;
    consider(name);
    name = kept.parent;
  }
}

// It may have become one that can give way.
void PagePool::consider(int64_t name) {
  const Kept& kept = kept_.at(name);
  if (kept.holders == 0 && kept.children == 0) leaves_.emplace(kept.used, name);
}

void PagePool::evict_one() {
  const int64_t name = leaves_.begin()->second;
  leaves_.erase(leaves_.begin());
  const Kept kept = std::move(kept_.at(name));
  kept_.erase(name);
  const auto [begin, end] = by_hash_.equal_range(kept.hash);
  by_hash_.erase(std::find_if(begin, end, [&](const auto& each) { return each.second == name; }));
  kept_of_page_[static_cast<size_t>(kept.page)] = 0;
  free_.push_back(kept.page);
  --idle_;
  if (kept.parent == 0) return;
  --kept_.at(kept.parent).children;
  consider(kept.parent);
}

int64_t PagePool::find(PageTable& table, std::span<const int32_t> ids, const PrefixOwner& owner) {
  const auto size = static_cast<size_t>(page_tokens_);
  int64_t last = 0;
  while (keeping_ && (table.pages.size() + 1) * size < ids.size()) {
    const int64_t next = look_up(last, ids.subspan(table.pages.size() * size, size), owner);
    if (next == 0) break;
    table.pages.push_back(kept_.at(next).page);
    last = next;
  }
  hold(last);
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

void PagePool::keep(PageTable& table, std::span<const int32_t> ids, int64_t cached, const PrefixOwner& owner) {
  const auto size = static_cast<size_t>(page_tokens_);
  while (keeping_ && (table.shared + 1) * page_tokens_ <= cached) {
    const std::span<const int32_t> own = ids.subspan(static_cast<size_t>(table.shared) * size, size);
    int64_t name = look_up(table.chain, own, owner);
    if (name == 0) {
      name = ++last_name_;
      Kept kept;
      kept.parent = table.chain;
      kept.owner = owner;
      kept.ids.assign(own.begin(), own.end());
      kept.page = table.pages[static_cast<size_t>(table.shared)];
      kept.hash = hash_of(kept.parent, own, owner);
      kept.used = ++clock_;
      if (kept.parent != 0) ++kept_.at(kept.parent).children;  // held by this table: it is no leaf of leaves_
      by_hash_.emplace(kept.hash, name);
      kept_of_page_[static_cast<size_t>(kept.page)] = name;
      kept_.emplace(name, std::move(kept));
      ++idle_;
      consider(name);
    } else {
      // Somebody had kept an equal page: the table goes on with that, and its own copy is free.
      int32_t& page = table.pages[static_cast<size_t>(table.shared)];
      free_.push_back(page);
      page = kept_.at(name).page;
    }
    hold(name);
    let_go(table.chain);
    table.chain = name;
    ++table.shared;
  }
}

void PagePool::release(PageTable& table) {
  for (auto page = table.pages.rbegin(); page != table.pages.rend(); ++page) {
    if (kept_of_page_[static_cast<size_t>(*page)] == 0) free_.push_back(*page);
  }
  let_go(table.chain);
  table = {};
}

}  // namespace ingot::infer
