#include "base/config.h"

#include "base/error.h"
#include "base/strings.h"

namespace ingot {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  return near.empty() ? "known keys: " + joined(known) : fmt::format("did you mean '{}'?", near);
}

std::string child_path(const ConfigNode& node, const std::string& key) { return ConfigNode::absent(node, key).path(); }

}  // namespace

namespace config_detail {

void check_rules(const ConfigNode& node, double value, const FieldRules& rules) {
  const bool fits = (!rules.min || value >= *rules.min) && (!rules.max || value <= *rules.max) &&
                    (!rules.above || value > *rules.above) && (!rules.below || value < *rules.below);
  if (fits) return;
  std::vector<std::string> bounds;
  if (rules.min) bounds.push_back(fmt::format("of at least {}", *rules.min));
  if (rules.above) bounds.push_back(fmt::format("above {}", *rules.above));
  if (rules.max) bounds.push_back(fmt::format("of at most {}", *rules.max));
  if (rules.below) bounds.push_back(fmt::format("below {}", *rules.below));
  std::string expected = "a number";
  for (size_t i = 0; i < bounds.size(); ++i) expected += (i == 0 ? " " : " and ") + bounds[i];
  node.fail(expected);
}

ConfigNode type_schema(const char* type) {
  ConfigNode schema = ConfigNode::map();
  schema.set("type", ConfigNode::text(type));
  return schema;
}

ConfigNode number_schema(const char* type, const FieldRules& rules) {
  ConfigNode schema = type_schema(type);
  if (rules.min) schema.set("minimum", ConfigNode::number(*rules.min));
  if (rules.max) schema.set("maximum", ConfigNode::number(*rules.max));
  if (rules.above) schema.set("exclusiveMinimum", ConfigNode::number(*rules.above));
  if (rules.below) schema.set("exclusiveMaximum", ConfigNode::number(*rules.below));
  return schema;
}

ConfigNode any_of(std::vector<ConfigNode> choices) {
  ConfigNode schema = ConfigNode::map();
  schema.set("anyOf", ConfigNode::list(std::move(choices)));
  return schema;
}

ConfigNode list_schema(ConfigNode item) {
  ConfigNode schema = type_schema("array");
  schema.set("items", std::move(item));
  return schema;
}

ConfigNode enum_schema(const std::vector<std::string>& words) {
  std::vector<ConfigNode> items;
  for (const std::string& word : words) items.push_back(ConfigNode::text(word));
  ConfigNode schema = ConfigNode::map();
  schema.set("enum", ConfigNode::list(std::move(items)));
  return schema;
}

size_t read_word(const ConfigNode& node, const std::vector<std::string>& words) {
  if (!node.is_scalar()) node.fail("one of " + joined(words));
  const auto found = std::find(words.begin(), words.end(), node.as_text());
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  const std::string near = nearest(node.as_text(), words);
  node.fail("one of " + joined(words), near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

int64_t read_integer(const ConfigNode& node, int64_t lowest, int64_t highest) {
  const int64_t value = node.as_int();
  if (value < lowest || value > highest) node.fail(fmt::format("a whole number from {} to {}", lowest, highest));
  return value;
}

}  // namespace config_detail

ConfigReader::ConfigReader(const ConfigNode& node) : node_(node) {
  if (!node.is_map() && !node.is_null()) node.fail("a section (key: value lines)");
}

const ConfigNode* ConfigReader::take(const char* key, const FieldRules& rules) {
  known_.emplace_back(key);
  const ConfigNode* child = node_.find(key);
  if (rules.alias != nullptr) {
    known_.emplace_back(rules.alias);
    const ConfigNode* alias = node_.find(rules.alias);
    if (alias != nullptr && child != nullptr && alias->from_override() == child->from_override()) {
      throw_hint(ErrorKind::usage, fmt::format("remove '{}': it is the deprecated name", rules.alias),
                 "{}: '{}' and '{}' are the same setting", alias->where(), child->path(), alias->path());
    }
    // The command line takes precedence, whichever name it uses.
    if (alias != nullptr && (child == nullptr || alias->from_override())) child = alias;
  }
  if (child == nullptr && rules.required) missing_.emplace_back(key);
  return child;
}

void ConfigReader::finish() const {
  for (size_t i = 0; i < node_.keys().size(); ++i) {
    const std::string& key = node_.keys()[i];
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    throw Error(ErrorKind::usage, fmt::format("{}: unknown key '{}'", node_.items()[i].where(), child_path(node_, key)),
                did_you_mean(key, known_));
  }
  if (!missing_.empty()) {
    throw_hint(ErrorKind::usage, fmt::format("add a line '{}: ...'", missing_[0]), "{}: the key '{}' is missing",
               node_.where(), child_path(node_, missing_[0]));
  }
}

void SchemaWriter::add(const char* key, ConfigNode schema, const char* help, bool required) {
  schema.set("description", ConfigNode::text(help));
  properties_.set(key, std::move(schema));
  if (required) required_.push_back(ConfigNode::text(key));
}

void SchemaWriter::add_default(const char* key, ConfigNode value) {
  ConfigNode schema = *properties_.find(key);
  schema.set("default", std::move(value));
  properties_.set(key, std::move(schema));
}

void SchemaWriter::add_alias(const char* key, ConfigNode schema, const char* now) {
  schema.set("description", ConfigNode::text(fmt::format("deprecated name of {}", now)));
  schema.set("deprecated", ConfigNode::boolean(true));
  properties_.set(key, std::move(schema));
}

ConfigNode SchemaWriter::take() {
  ConfigNode schema = config_detail::type_schema("object");
  schema.set("properties", std::move(properties_));
  schema.set("additionalProperties", ConfigNode::boolean(false));
  if (!required_.empty()) schema.set("required", ConfigNode::list(std::move(required_)));
  return schema;
}

ConfigNode titled_schema(const ConfigNode& schema, std::string_view title) {
  ConfigNode titled = ConfigNode::map();
  titled.set("$schema", ConfigNode::text("https://json-schema.org/draft/2020-12/schema"));
  titled.set("title", ConfigNode::text(title));
  for (size_t i = 0; i < schema.keys().size(); ++i) titled.set(schema.keys()[i], schema.items()[i]);
  return titled;
}

}  // namespace ingot
