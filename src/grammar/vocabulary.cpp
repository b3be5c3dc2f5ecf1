#include "grammar/vocabulary.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "text/tokenizer.h"

namespace ingot::grammar {

namespace {

constexpr size_t max_vocabulary_matches = 2048;  // about 6 KiB each for 49,152 tokens
constexpr size_t max_token = 1 << 12;            // bytes; longer tokens are never allowed

std::vector<std::string> plain_tokens(const text::Tokenizer& tokenizer) {
  std::vector<std::string> tokens(static_cast<size_t>(tokenizer.size()));
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (!tokenizer.is_special(id) && !tokenizer.is_control(id))
      tokens[static_cast<size_t>(id)] = tokenizer.token_bytes(id);
  }
  return tokens;
}

}  // namespace

Vocabulary::Vocabulary(const std::vector<std::string>& tokens, std::vector<int32_t> end_ids)
    : tokens_(tokens), end_ids_(std::move(end_ids)) {
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
  for (const int32_t id : end_ids_) {
    if (id < 0 || id >= size()) throw_error(ErrorKind::usage, "the end token {} is not one of {} tokens", id, size());
    tokens_[static_cast<size_t>(id)].clear();
  }
  for (std::string& token : tokens_) {
    if (token.size() > max_token) token.clear();
  }
  make_trie();
  split_plain();
}

Vocabulary::Vocabulary(const text::Tokenizer& tokenizer, std::vector<int32_t> end_ids)
    : Vocabulary(plain_tokens(tokenizer), std::move(end_ids)) {}

bool Vocabulary::is_end(int32_t id) const { return std::binary_search(end_ids_.begin(), end_ids_.end(), id); }

void Vocabulary::make_trie() {
  std::vector<int32_t> order(tokens_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const int compared = bytes(a).compare(bytes(b));
    return compared != 0 ? compared < 0 : a < b;
  });
  same_.assign(tokens_.size(), -1);
  nodes_.push_back({.byte = 0, .depth = 0, .token = -1, .end = 0});
  std::vector<size_t> path = {0};  // nodes from the root to the end of the previous token
  std::string before;
  for (const int32_t id : order) {
    const std::string& token = bytes(id);
    if (token.empty()) continue;
    longest_ = std::max(longest_, static_cast<int64_t>(token.size()));
    const size_t common = static_cast<size_t>(
        std::mismatch(before.begin(), before.end(), token.begin(), token.end()).first - before.begin());
    for (; path.size() > common + 1; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t i = common; i < token.size(); ++i) {
      path.push_back(nodes_.size());
      nodes_.push_back(
          {.byte = static_cast<uint8_t>(token[i]), .depth = static_cast<uint16_t>(i + 1), .token = -1, .end = 0});
    }
    int32_t& here = nodes_[path.back()].token;
    same_[static_cast<size_t>(id)] = here;
    here = id;
    before = token;
  }
  for (const size_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
}

void Vocabulary::split_plain() {
  plain_.assign(num_words(), 0);
  std::vector<bool> needed(nodes_.size());
  std::vector<size_t> path;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    path.resize(nodes_[i].depth);
    path.push_back(i);
    const int32_t id = nodes_[i].token;
    if (id < 0) continue;
    const bool is_all_plain =
        std::all_of(path.begin() + 1, path.end(), [&](size_t at) { return is_plain(nodes_[at].byte); });
    for (int32_t token = id; token >= 0 && is_all_plain; token = same(token)) {
      plain_[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
    }
    if (is_all_plain) continue;
    for (const size_t at : path) needed[at] = true;
  }
  std::vector<uint32_t> before(nodes_.size() + 1);  // number of needed nodes before each node
  for (size_t i = 0; i < nodes_.size(); ++i) before[i + 1] = before[i] + (needed[i] ? 1 : 0);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!needed[i]) continue;
    Node node = nodes_[i];
    const bool is_plain_token =
        node.token >= 0 && (plain_[static_cast<size_t>(node.token) / 32] >> (node.token % 32) & 1) != 0;
    if (is_plain_token) node.token = -1;
    node.end = before[node.end];
    others_.push_back(node);
    node_of_other_.push_back(static_cast<uint32_t>(i));
  }
}

std::shared_ptr<const TrieMatch> Vocabulary::find(const Key& key) const {
  const std::lock_guard lock(mutex_);
  const auto at = matches_.find(key);
  return at == matches_.end() ? nullptr : at->second;
}

void Vocabulary::store(const Key& key, std::shared_ptr<const TrieMatch> match) const {
  const std::lock_guard lock(mutex_);
  if (matches_.size() >= max_vocabulary_matches || cached_bytes_ > TrieMatch::max_cached_bytes) {
    matches_.clear();
    cached_bytes_ = 0;
  }
  const size_t bytes = match->bytes();
  if (matches_.emplace(key, std::move(match)).second) cached_bytes_ += bytes;
}

std::shared_ptr<const Vocabulary> byte_vocabulary() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  tokens.emplace_back();
  return std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{256});
}

}  // namespace ingot::grammar
