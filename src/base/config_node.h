// A YAML document as a tree whose nodes know where they were written. YAML itself (yaml-cpp) stays in the .cpp.
//
// Accepted: one UTF-8 document of plain, quoted, list and map values. Refused, with file and line: aliases and anchors
// (a few lines of them can expand to terabytes), duplicate keys, keys that are not plain text, more than one document,
// and documents beyond max_bytes, max_depth or max_nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/nesting.h"

namespace ingot {

class ConfigNode {
 public:
  enum class Kind { null, scalar, list, map };

  static constexpr size_t max_bytes = size_t{1} << 20;
  static constexpr int max_depth = max_json_depth;
  static constexpr int max_nodes = 100'000;

  // Errors: not_found for the file, resource for more than max_bytes, usage for its contents. An empty document is
  // null.
  static ConfigNode from_file(const std::filesystem::path& path);
  // `name` is used as the file name in messages.
  static ConfigNode from_text(std::string_view text, const std::string& name);

  // Values made by the program (for dumps and schemas).
  ConfigNode() = default;  // null
  static ConfigNode text(std::string_view value);
  static ConfigNode boolean(bool value);
  static ConfigNode integer(int64_t value);
  static ConfigNode number(double value);  // shortest text that reads back as the same double
  static ConfigNode list(std::vector<ConfigNode> items = {});
  static ConfigNode map();
  // Null, but with a path and a position: represents a key that `parent` does not have.
  static ConfigNode absent(const ConfigNode& parent, std::string_view key);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::null; }
  bool is_scalar() const { return kind_ == Kind::scalar; }
  bool is_list() const { return kind_ == Kind::list; }
  bool is_map() const { return kind_ == Kind::map; }
  bool is_plain(std::string_view text) const { return is_scalar() && !quoted_ && text_ == text; }  // unquoted scalar
  const std::string& path() const { return path_; }    // "data.train[1].weight"; empty at the root
  const std::string& where() const { return where_; }  // "recipe.yaml:12" or "command line, steps=5"
  bool from_override() const { return from_override_; }
  const std::string& comment() const { return comment_; }
  void set_comment(std::string comment) { comment_ = std::move(comment); }

  // Children: the items of a list, or the values of a map in the order written. Keys of a map, in the same order.
  std::span<const ConfigNode> items() const { return items_; }
  std::span<const std::string> keys() const { return keys_; }
  // Child of a map, or nullptr (also when this is not a map).
  const ConfigNode* find(std::string_view key) const;
  // Adds or replaces a child of a map (null becomes a map).
  void set(std::string_view key, ConfigNode value);
  // Removes a key of this map, if it exists.
  void erase(std::string_view key);

  // Applies "optimizer.lr=1e-4" (list items by number: "data.train.0.weight=2"). The value is read as YAML; missing
  // sections are created. Returns the dotted key. Errors: usage.
  std::string apply_override(std::string_view assignment);

  // Typed values. Errors: usage, "recipe.yaml:12: optimizer.lr: expected a number, found 'fast'".
  bool as_bool() const;                // true or false
  int64_t as_int() const;              // 12, -3, or a whole number such as 1e9
  double as_double() const;            // finite
  const std::string& as_text() const;  // any scalar, as written
  // Throws the message above.
  [[noreturn]] void fail(std::string_view expected, std::string hint = {}) const;

  // YAML with the comment of each node: after a scalar, above a section. Reads back as an equal tree.
  std::string to_yaml() const;
  // JSON, indented by two spaces.
  std::string to_json() const;

 private:
  friend class ConfigTreeBuilder;
  static ConfigNode scalar(std::string text, bool quoted);
  ConfigNode* find_mutable(std::string_view key);
  void relocate(const std::string& path, const std::string& where);

  Kind kind_ = Kind::null;
  bool quoted_ = false;  // always text, even when it looks like a number
  bool from_override_ = false;
  std::string text_;
  std::string path_;
  std::string where_;
  std::string comment_;
  std::vector<std::string> keys_;
  std::vector<ConfigNode> items_;
};

}  // namespace ingot
