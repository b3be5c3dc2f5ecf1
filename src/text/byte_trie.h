// A trie that maps byte strings to nonnegative integers.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot::text {

class ByteTrie {
 public:
  static constexpr int32_t root = 0;
  static constexpr int32_t none = -1;

  // Replaces the value of an existing key. `value` must not be negative.
  void insert(std::string_view key, int32_t value) {
    int32_t node = root;
    for (const char c : key) {
      if (2 * values_.size() > edges_.size()) grow();
      Edge& edge = edges_[slot_of(edges_, name_of(node, c))];
      if (edge.to == none) {
        edge = {name_of(node, c), static_cast<int32_t>(values_.size())};
        values_.push_back(none);
      }
      node = edge.to;
    }
    values_[static_cast<size_t>(node)] = value;
  }

  // The child of `node` for `byte`, or none.
  int32_t next(int32_t node, char byte) const { return edges_[slot_of(edges_, name_of(node, byte))].to; }

  // The value of the key that ends at `node`, or none.
  int32_t value(int32_t node) const { return values_[static_cast<size_t>(node)]; }

 private:
  struct Edge {
    uint64_t name = 0;  // name_of
    int32_t to = none;  // none for an empty slot
  };

  static uint64_t name_of(int32_t node, char byte) {
    return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
  }

  // The slot of the edge with this name, or the empty slot where it belongs.
  static size_t slot_of(const std::vector<Edge>& edges, uint64_t name) {
    const uint64_t product = name * 0x9E3779B97F4A7C15ULL;
    size_t slot = static_cast<size_t>(product ^ product >> 32) & (edges.size() - 1);
    while (edges[slot].to != none && edges[slot].name != name) slot = (slot + 1) & (edges.size() - 1);
    return slot;
  }

  void grow() {
    std::vector<Edge> larger(2 * edges_.size());
    for (const Edge& edge : edges_) {
      if (edge.to != none) larger[slot_of(larger, edge.name)] = edge;
    }
    edges_ = std::move(larger);
  }

  std::vector<Edge> edges_ = std::vector<Edge>(16);  // open addressing, a power of two, at most half full
  std::vector<int32_t> values_ = {none};             // by node
};

}  // namespace ingot::text
