#include "base/config_node.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cmath>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/strings.h"

namespace ingot {
namespace {

std::string join_path(const std::string& parent, std::string_view key) {
  return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

constexpr const char* plain_key = "a key must be plain text (or is a bracket left open?)";

std::string shortened(std::string_view text) {
  constexpr size_t max_shown = 60;
  return text.size() <= max_shown ? std::string(text) : std::string(text.substr(0, max_shown)) + "...";
}

}  // namespace

// Builds the tree from yaml-cpp's events, so that a hostile document is refused before the tree grows.
class ConfigTreeBuilder final : public YAML::EventHandler {
 public:
  explicit ConfigTreeBuilder(const std::string& name) : name_(name) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (seen_document_) refuse(mark, "a second YAML document starts here; a configuration must be one document");
    seen_document_ = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, anchor, ConfigNode()); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "aliases (*name) are not accepted; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (tag != "?" && tag != "!" && !tag.empty() && tag != "tag:yaml.org,2002:str") {
      refuse(mark, fmt::format("the tag {} is not accepted", tag));
    }
    add(mark, anchor, ConfigNode::scalar(value, tag != "?" && !tag.empty()));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor, ConfigNode::list());
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor, ConfigNode::map());
  }
  void OnMapEnd() override { close(); }

  ConfigNode take() { return std::move(root_); }

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& words) const {
    throw_error(ErrorKind::usage, "{}: {}", position_of(mark), words);
  }

 private:
  struct Open {
    ConfigNode node;
    std::string key;
    bool has_key = false;
  };

  std::string position_of(const YAML::Mark& mark) const { return fmt::format("{}:{}", name_, mark.line + 1); }

  void check(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuse(mark, "anchors (&name) are not accepted; write the value out");
    if (++num_nodes_ > ConfigNode::max_nodes) refuse(mark, fmt::format("more than {} values", ConfigNode::max_nodes));
  }

  void add(const YAML::Mark& mark, YAML::anchor_t anchor, ConfigNode node) {
    check(mark, anchor);
    place_node(mark, std::move(node));
  }

  void open(const YAML::Mark& mark, YAML::anchor_t anchor, ConfigNode node) {
    check(mark, anchor);
    if (static_cast<int>(stack_.size()) >= ConfigNode::max_depth) {
      refuse(mark, fmt::format("nested deeper than {} levels", ConfigNode::max_depth));
    }
    if (awaits_key()) refuse(mark, plain_key);
    node.where_ = position_of(mark);
    node.path_ = child_path();
    stack_.push_back({std::move(node), {}, false});
    marks_.push_back(mark);
  }

  void close() {
    ConfigNode node = std::move(stack_.back().node);
    const YAML::Mark mark = marks_.back();
    stack_.pop_back();
    marks_.pop_back();
    place_node(mark, std::move(node));
  }

  bool awaits_key() const { return !stack_.empty() && stack_.back().node.is_map() && !stack_.back().has_key; }

  std::string child_path() const {
    if (stack_.empty()) return {};
    const Open& parent = stack_.back();
    if (parent.node.is_list()) return fmt::format("{}[{}]", parent.node.path_, parent.node.items_.size());
    return join_path(parent.node.path_, parent.key);
  }

  void place_node(const YAML::Mark& mark, ConfigNode node) {
    if (awaits_key()) {
      Open& parent = stack_.back();
      if (!node.is_scalar()) refuse(mark, plain_key);
      if (parent.node.find(node.text_) != nullptr) {
        refuse(mark, fmt::format("the key '{}' is written twice", join_path(parent.node.path_, node.text_)));
      }
      parent.key = std::move(node.text_);
      parent.has_key = true;
      return;
    }
    node.where_ = position_of(mark);
    node.path_ = child_path();
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = stack_.back();
    if (parent.node.is_map()) {
      parent.node.keys_.push_back(std::exchange(parent.key, {}));
      parent.has_key = false;
    }
    parent.node.items_.push_back(std::move(node));
  }

  std::string name_;
  ConfigNode root_;
  std::vector<Open> stack_;
  std::vector<YAML::Mark> marks_;
  int num_nodes_ = 0;
  bool seen_document_ = false;
};

ConfigNode ConfigNode::from_file(const std::filesystem::path& path) {
  return from_text(read_file(path, max_bytes), path.string());
}

ConfigNode ConfigNode::from_text(std::string_view text, const std::string& name) {
  if (text.size() > max_bytes) {
    throw_error(ErrorKind::usage, "{}: is {} bytes long; a configuration may have {}", name, text.size(), max_bytes);
  }
  if (!is_utf8(text)) throw_error(ErrorKind::usage, "{}: is not UTF-8 text", name);
  if (text.find('\0') != std::string_view::npos) throw_error(ErrorKind::usage, "{}: holds a zero byte", name);
  ConfigTreeBuilder builder(name);
  try {
    // An explicit end of the document: without it yaml-cpp 0.7 takes the end of the file for a missing closing quote.
    std::istringstream stream{std::string(text) + (text.ends_with('\n') ? "...\n" : "\n...\n")};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    builder.refuse(error.mark, "not valid YAML: " + error.msg);
  }
  ConfigNode root = builder.take();
  if (root.is_null()) root.where_ = name;
  return root;
}

ConfigNode ConfigNode::scalar(std::string text, bool quoted) {
  ConfigNode node;
  node.kind_ = Kind::scalar;
  node.text_ = std::move(text);
  node.quoted_ = quoted;
  return node;
}

ConfigNode ConfigNode::text(std::string_view value) { return scalar(std::string(value), true); }
ConfigNode ConfigNode::boolean(bool value) { return scalar(value ? "true" : "false", false); }
ConfigNode ConfigNode::integer(int64_t value) { return scalar(fmt::format("{}", value), false); }
ConfigNode ConfigNode::number(double value) { return scalar(fmt::format("{}", value), false); }

ConfigNode ConfigNode::list(std::vector<ConfigNode> items) {
  ConfigNode node;
  node.kind_ = Kind::list;
  node.items_ = std::move(items);
  return node;
}

ConfigNode ConfigNode::map() {
  ConfigNode node;
  node.kind_ = Kind::map;
  return node;
}

ConfigNode ConfigNode::absent(const ConfigNode& parent, std::string_view key) {
  ConfigNode node;
  node.path_ = join_path(parent.path_, key);
  node.where_ = parent.where_;
  return node;
}

const ConfigNode* ConfigNode::find(std::string_view key) const {
  return const_cast<ConfigNode*>(this)->find_mutable(key);
}

ConfigNode* ConfigNode::find_mutable(std::string_view key) {
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i] == key) return &items_[i];
  }
  return nullptr;
}

void ConfigNode::set(std::string_view key, ConfigNode value) {
  if (is_null()) kind_ = Kind::map;
  if (!is_map()) throw_error(ErrorKind::internal, "{}: set('{}') on a value that is not a map", path_, key);
  if (ConfigNode* old = find_mutable(key)) {
    *old = std::move(value);
    return;
  }
  keys_.emplace_back(key);
  items_.push_back(std::move(value));
}

void ConfigNode::erase(std::string_view key) {
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i] != key) continue;
    keys_.erase(keys_.begin() + static_cast<std::ptrdiff_t>(i));
    items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

void ConfigNode::relocate(const std::string& path, const std::string& where) {
  path_ = path;
  where_ = where;
  from_override_ = true;
  for (size_t i = 0; i < items_.size(); ++i) {
    items_[i].relocate(is_map() ? join_path(path, keys_[i]) : fmt::format("{}[{}]", path, i), where);
  }
}

std::string ConfigNode::apply_override(std::string_view assignment) {
  const std::string where = fmt::format("command line, {}", shortened(assignment));
  const size_t equals = assignment.find('=');
  const std::string dotted(trim(assignment.substr(0, equals)));
  const std::vector<std::string> steps = split(dotted, '.');
  const bool has_gap = std::any_of(steps.begin(), steps.end(), [](const std::string& step) { return step.empty(); });
  if (equals == std::string_view::npos || has_gap || static_cast<int>(steps.size()) > max_depth) {
    throw_hint(ErrorKind::usage, "write an override as key=value, for instance optimizer.lr=1e-4",
               "{}: is not an override", where);
  }
  ConfigNode value = from_text(assignment.substr(equals + 1), where);

  ConfigNode* node = this;
  std::string path = path_;
  for (const std::string& step : steps) {
    if (node->is_list()) {
      const std::optional<int64_t> index = parse_int(step);
      if (!index || *index < 0 || *index >= std::ssize(node->items_)) {
        throw_error(ErrorKind::usage, "{}: {} is a list of {} items; '{}' is not a valid index", where, path,
                    node->items_.size(), step);
      }
      path = fmt::format("{}[{}]", path, *index);
      node = &node->items_[static_cast<size_t>(*index)];
      continue;
    }
    if (node->is_scalar()) {
      throw_error(ErrorKind::usage, "{}: {} is '{}', which has no key '{}'", where, path, shortened(node->text_), step);
    }
    path = join_path(path, step);
    if (node->find(step) == nullptr) {
      ConfigNode made;
      made.relocate(path, where);
      node->set(step, std::move(made));
    }
    node = node->find_mutable(step);
  }
  value.relocate(path, where);
  *node = std::move(value);
  return dotted;
}

bool ConfigNode::as_bool() const {
  if (is_plain("true")) return true;
  if (is_plain("false")) return false;
  fail("true or false");
}

int64_t ConfigNode::as_int() const {
  const bool plain = is_scalar() && !quoted_;
  if (const std::optional<int64_t> value = plain ? parse_int(text_) : std::nullopt) return *value;
  const std::optional<double> real = plain ? parse_double(text_) : std::nullopt;
  fail(real && *real == std::floor(*real) ? "a whole number that fits 64 bits" : "a whole number");
}

double ConfigNode::as_double() const {
  if (const std::optional<double> value = is_scalar() && !quoted_ ? parse_double(text_) : std::nullopt) return *value;
  fail("a number");
}

const std::string& ConfigNode::as_text() const {
  if (!is_scalar()) fail("text");
  return text_;
}

void ConfigNode::fail(std::string_view expected, std::string hint) const {
  std::string found;
  switch (kind_) {
    case Kind::null: found = "nothing"; break;
    case Kind::scalar: found = (quoted_ ? "the text \"" : "'") + shortened(text_) + (quoted_ ? "\"" : "'"); break;
    case Kind::list: found = fmt::format("a list of {}", items_.size()); break;
    case Kind::map: found = "a section"; break;
  }
  const std::string key = path_.empty() ? "" : path_ + ": ";
  throw Error(ErrorKind::usage, fmt::format("{}: {}expected {}, found {}", where_, key, expected, found),
              std::move(hint));
}

namespace {

bool is_reserved(std::string_view text) {
  static constexpr std::string_view words[] = {"null", "true", "false", "yes", "no", "on",
                                               "off",  "y",    "n",     "nan", "inf"};
  std::string lowered(text);
  for (char& c : lowered) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::find(std::begin(words), std::end(words), lowered) != std::end(words);
}

// Text as a YAML scalar: plain where every YAML reader reads it as text, else double-quoted (JSON's escapes are valid
// in YAML).
std::string yaml_text(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto safe = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || (c != 0 && std::strchr("_-./+", c)); };
  const bool first = !text.empty() && (letter(text[0]) || text[0] == '/' || text[0] == '_');
  const bool share = text.ends_with('%') && parse_double(text.substr(0, text.size() - 1));
  if (share || (first && std::all_of(text.begin(), text.end(), safe) && !is_reserved(text))) return std::string(text);
  return json_escape(text);
}

// Whether an unquoted scalar stays unquoted: a number, true or false.
bool is_bare(const std::string& text) { return text == "true" || text == "false" || parse_double(text); }

class YamlText {
 public:
  std::string out;

  void value(const ConfigNode& node, int indent) {
    if (node.is_map() && !node.items().empty()) {
      map(node, indent, false);
    } else if (node.is_list() && holds_collections(node)) {
      for (const ConfigNode& item : node.items()) {
        out += std::string(static_cast<size_t>(indent), ' ') + "- ";
        if (item.is_map() && !item.items().empty()) {
          map(item, indent + 2, true);
        } else {
          out += flow(item) + "\n";
        }
      }
    } else {
      out += std::string(static_cast<size_t>(indent), ' ') + flow(node) + "\n";
    }
  }

 private:
  static bool holds_collections(const ConfigNode& node) {
    const auto items = node.items();
    return std::any_of(items.begin(), items.end(),
                       [](const ConfigNode& item) { return item.is_map() && !item.items().empty(); });
  }

  void map(const ConfigNode& node, int indent, bool first_is_placed) {
    const std::string margin(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < node.items().size(); ++i) {
      const ConfigNode& item = node.items()[i];
      const bool block = (item.is_map() && !item.items().empty()) || (item.is_list() && holds_collections(item));
      const bool placed = first_is_placed && i == 0;
      // The first line of a list item has no room for a comment above it.
      if (block && !item.comment().empty() && !placed) out += margin + "# " + item.comment() + "\n";
      if (!placed) out += margin;
      out += yaml_text(node.keys()[i]) + ":";
      if (block) {
        out += "\n";
        value(item, indent + 2);
        continue;
      }
      out += " " + flow(item);
      if (!item.comment().empty()) out += "  # " + item.comment();
      out += "\n";
    }
  }

  static std::string flow(const ConfigNode& node) {
    switch (node.kind()) {
      case ConfigNode::Kind::null: return "null";
      case ConfigNode::Kind::scalar:
        return node.is_plain(node.as_text()) && is_bare(node.as_text()) ? node.as_text() : yaml_text(node.as_text());
      case ConfigNode::Kind::list:
      case ConfigNode::Kind::map: break;
    }
    std::string text = node.is_map() ? "{" : "[";
    for (size_t i = 0; i < node.items().size(); ++i) {
      if (i > 0) text += ", ";
      if (node.is_map()) text += yaml_text(node.keys()[i]) + ": ";
      text += flow(node.items()[i]);
    }
    return text + (node.is_map() ? "}" : "]");
  }
};

std::string json_scalar(const ConfigNode& node) {
  const std::string& text = node.as_text();
  if (!node.is_plain(text) || !is_bare(text)) return json_escape(text);
  const std::optional<double> real = parse_double(text);
  if (!real) return text;  // true or false
  // A number of digits alone is kept as an integer, because it may have more digits than a double holds.
  const bool exponent = text.find_first_of(".eE") != std::string::npos;
  const std::optional<int64_t> whole = exponent ? std::nullopt : parse_int(text);
  return whole ? fmt::format("{}", *whole) : fmt::format("{}", *real);
}

void add_json(const ConfigNode& node, int indent, std::string& out) {
  if (node.is_null()) out += "null";
  if (node.is_scalar()) out += json_scalar(node);
  if (!node.is_list() && !node.is_map()) return;
  const std::string margin(static_cast<size_t>(indent), ' ');
  out += node.is_map() ? "{" : "[";
  for (size_t i = 0; i < node.items().size(); ++i) {
    out += (i > 0 ? ",\n  " : "\n  ") + margin;
    if (node.is_map()) out += json_escape(node.keys()[i]) + ": ";
    add_json(node.items()[i], indent + 2, out);
  }
  if (!node.items().empty()) out += "\n" + margin;
  out += node.is_map() ? "}" : "]";
}

}  // namespace

std::string ConfigNode::to_yaml() const {
  YamlText text;
  if (!comment_.empty()) text.out += "# " + comment_ + "\n";
  text.value(*this, 0);
  return text.out;
}

std::string ConfigNode::to_json() const {
  std::string out;
  add_json(*this, 0, out);
  return out + "\n";
}

}  // namespace ingot
