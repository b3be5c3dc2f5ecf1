// The tokens of a model as bytes, for masks.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace ingot::text {
class Tokenizer;
}

namespace ingot::grammar {

// Which tokens stay inside a lexeme, from some place of the trie on, and where the lexeme may end.
struct Walk {
  std::vector<int32_t> tokens;  // in no order; unused when there are bits
  std::vector<uint32_t> bits;   // by token, or empty
  std::vector<uint32_t> ends;   // nodes of the trie, ascending

  static constexpr size_t max_kept_bytes = 32 << 20;  // of walks that one cache keeps
  size_t bytes() const { return sizeof(Walk) + 4 * (tokens.capacity() + bits.capacity() + ends.capacity()); }
};

// Immutable but for a cache; shared by threads.
class Vocabulary {
 public:
  struct Node {
    uint8_t byte;
    uint16_t depth;  // bytes up to here
    int32_t token;   // that ends here, or -1
    uint32_t end;    // the first node behind those below this one
  };

  // `tokens` are bytes by id, "" for ids that no text consists of (special tokens). `end_ids` end an output. Errors:
  // usage for an end id that is not a token.
  Vocabulary(const std::vector<std::string>& tokens, std::vector<int32_t> end_ids);
  Vocabulary(const text::Tokenizer& tokenizer, std::vector<int32_t> end_ids);

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  size_t num_words() const { return (tokens_.size() + 31) / 32; }
  const std::string& bytes(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  std::span<const int32_t> end_ids() const { return end_ids_; }
  bool is_end(int32_t id) const;
  int64_t longest() const { return longest_; }  // bytes of a token

  // Depth first; nodes()[0] is the root, the empty text.
  std::span<const Node> nodes() const { return nodes_; }
  // Tokens of nothing but printable ASCII without quotes and backslashes, as bits: what texts mostly consist of. The
  // nodes that lead to any other token are a trie of their own; `place` of such a node is its number in nodes().
  static bool is_plain(uint8_t byte) { return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\'; }
  const std::vector<uint32_t>& plain() const { return plain_; }
  std::span<const Node> others() const { return others_; }
  uint32_t place(uint32_t other) const { return places_[other]; }
  // Another token with the same bytes, or -1.
  int32_t same(int32_t token) const { return same_[static_cast<size_t>(token)]; }

  // Walks that grammars have in common, by a key that names the lexeme and the node. Thread-safe.
  struct Key {
    uint64_t lexeme[2];
    uint32_t node;
    bool operator==(const Key&) const = default;
  };
  std::shared_ptr<const Walk> find(const Key& key) const;
  void keep(const Key& key, std::shared_ptr<const Walk> walk) const;

 private:
  void make_trie();
  void part_plain();

  struct KeyHash {
    size_t operator()(const Key& key) const { return static_cast<size_t>(key.lexeme[0] ^ (uint64_t{key.node} << 32)); }
  };

  std::vector<std::string> tokens_;
  std::vector<int32_t> end_ids_;  // ascending
  std::vector<Node> nodes_;
  std::vector<uint32_t> plain_;
  std::vector<Node> others_;
  std::vector<uint32_t> places_;
  std::vector<int32_t> same_;
  int64_t longest_ = 0;
  mutable std::mutex mutex_;
  mutable std::unordered_map<Key, std::shared_ptr<const Walk>, KeyHash> walks_;
  mutable size_t kept_bytes_ = 0;  // of these
};

// Every byte, and at the end one end token: for texts that are looked at without a tokenizer.
std::shared_ptr<const Vocabulary> byte_vocabulary();

}  // namespace ingot::grammar
