// A set of byte strings with a number each, searched byte by byte.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ingot::text {

class ByteTrie {
 public:
  static constexpr int32_t root = 0;
  static constexpr int32_t none = -1;

  // A key that is there already gets the new value. `value` is not negative.
  void insert(std::string_view key, int32_t value) {
    int32_t node = root;
    for (const char c : key) {
      const auto [found, is_new] = edges_.try_emplace(edge(node, c), static_cast<int32_t>(values_.size()));
      if (is_new) values_.push_back(none);
      node = found->second;
    }
    values_[static_cast<size_t>(node)] = value;
  }

  // The node behind `byte`, or none.
  int32_t next(int32_t node, char byte) const {
    const auto found = edges_.find(edge(node, byte));
    return found == edges_.end() ? none : found->second;
  }

  // The value of the key that ends at `node`, or none.
  int32_t value(int32_t node) const { return values_[static_cast<size_t>(node)]; }

 private:
  static uint64_t edge(int32_t node, char byte) {
    return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
  }

  std::unordered_map<uint64_t, int32_t> edges_;
  std::vector<int32_t> values_ = {none};  // by node
};

}  // namespace ingot::text
