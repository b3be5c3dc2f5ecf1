// The tokens of a model as byte strings, for token masks.
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

// The result of matching a lexeme against the trie below a node: the tokens that stay inside the lexeme, and the nodes
// where the lexeme may end.
struct TrieMatch {
  std::vector<int32_t> tokens;  // unordered; empty when `bits` is used
  std::vector<uint32_t> bits;   // bit mask by token id, or empty
  std::vector<uint32_t> ends;   // nodes of the trie, ascending

  static constexpr size_t max_cached_bytes = 32 << 20;  // max bytes of the walks in one cache
  size_t bytes() const { return sizeof(TrieMatch) + 4 * (tokens.capacity() + bits.capacity() + ends.capacity()); }
};

// The tokens and their trie. Immutable except for a cache; thread-safe.
class Vocabulary {
 public:
  struct Node {
    uint8_t byte;
    uint16_t depth;  // bytes from the root to this node
    int32_t token;   // the token that ends here, or -1
    uint32_t end;    // the index after the last descendant
  };

  // `tokens` are byte strings by id, "" for ids that are not text (special tokens). `end_ids` are the tokens that end
  // an output. Errors: usage for an end id that is not a token.
  Vocabulary(const std::vector<std::string>& tokens, std::vector<int32_t> end_ids);
  Vocabulary(const text::Tokenizer& tokenizer, std::vector<int32_t> end_ids);

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  size_t num_words() const { return (tokens_.size() + 31) / 32; }
  const std::string& bytes(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  std::span<const int32_t> end_ids() const { return end_ids_; }
  bool is_end(int32_t id) const;
  int64_t longest() const { return longest_; }  // max bytes of a token

  // The trie, depth first; nodes()[0] is the root, the empty text.
  std::span<const Node> nodes() const { return nodes_; }
  // A plain token consists only of is_plain bytes: printable ASCII without quotes and backslashes, which is most of a
  // typical text. `plain` is the bit mask of the plain tokens; `others` is a trie of all other tokens, laid out like
  // nodes(); `node_of_other` maps the index of a node in `others` to its index in nodes().
  static bool is_plain(uint8_t byte) { return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\'; }
  const std::vector<uint32_t>& plain() const { return plain_; }
  std::span<const Node> others() const { return others_; }
  uint32_t node_of_other(uint32_t other) const { return node_of_other_[other]; }
  // The next token with the same bytes, or -1: a linked list that starts at Node::token.
  int32_t same(int32_t token) const { return same_[static_cast<size_t>(token)]; }

  // A cache of walks shared by all grammars, by lexeme hash and node. Thread-safe.
  struct Key {
    uint64_t lexeme[2];
    uint32_t node;
    bool operator==(const Key&) const = default;
  };
  std::shared_ptr<const TrieMatch> find(const Key& key) const;
  void store(const Key& key, std::shared_ptr<const TrieMatch> match) const;

 private:
  void make_trie();
  void split_plain();

  struct KeyHash {
    size_t operator()(const Key& key) const { return static_cast<size_t>(key.lexeme[0] ^ (uint64_t{key.node} << 32)); }
  };

  std::vector<std::string> tokens_;
  std::vector<int32_t> end_ids_;  // ascending
  std::vector<Node> nodes_;
  std::vector<uint32_t> plain_;
  std::vector<Node> others_;
  std::vector<uint32_t> node_of_other_;
  std::vector<int32_t> same_;
  int64_t longest_ = 0;
  mutable std::mutex mutex_;
  mutable std::unordered_map<Key, std::shared_ptr<const TrieMatch>, KeyHash> matches_;
  mutable size_t cached_bytes_ = 0;  // of matches_
};

// One token for each byte, and one end token (256): for matching texts without a tokenizer.
std::shared_ptr<const Vocabulary> byte_vocabulary();

}  // namespace ingot::grammar
