// Typed configuration. One describe() function per struct provides reading (unknown keys are errors), the resolved
// YAML, and a JSON Schema:
//
//   struct Optimizer { double lr = 1e-3; std::vector<double> betas = {0.9, 0.95}; };
//   template <class Visitor>
//   void describe(Visitor& v, Optimizer& o) {              // in the struct's own namespace
//     v.field("lr", o.lr, "learning rate at the peak", {.above = 0});
//     v.field("betas", o.betas, "AdamW's two decay rates", {.min = 0, .below = 1});
//   }
//   template <class Visitor>
//   void describe(Visitor& v, Recipe& r) {
//     v.field("name", r.name, "name of the run", {.required = true});
// v.section("optimizer", r.optimizer, "the optimizer and its settings");
//   }
//
//   ConfigNode node = ConfigNode::from_file("recipe.yaml");
//   node.apply_override("optimizer.lr=1e-4");
//   Recipe recipe = read_config<Recipe>(node);
//   std::string resolved = write_config(recipe), schema = config_schema<Recipe>("Recipe");
//
// Field types: bool, int, int64_t, double, std::string, enums with an EnumNames table, std::optional<T> (null or absent
// is none), std::vector<T>, AutoOr<T>, OneOrMany<T>, described structs, and any type with its own ConfigType. A field
// that the file does not mention keeps the value with which the struct was made. A described struct T with a static
// member `T from_text(const std::string&)` may also be written as one plain text (say, a path).
#pragma once

#include <concepts>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/config_node.h"

namespace ingot {

// Bounds of a number (of each number, in lists; min and max are inclusive, above and below exclusive), whether the key
// is required, and its old name: a file may use either name, not both.
struct FieldRules {
  std::optional<double> min;
  std::optional<double> max;
  std::optional<double> above;
  std::optional<double> below;
  bool required = false;
  const char* alias = nullptr;
};

// A number or the word "auto". Empty is auto.
template <class T>
struct AutoOr {
  std::optional<T> value;
  bool is_auto() const { return !value.has_value(); }
  T value_or(T other) const { return value.value_or(other); }
  bool operator==(const AutoOr&) const = default;
};

// A list that may be written without brackets when it has one element.
template <class T>
struct OneOrMany {
  std::vector<T> values;
  bool operator==(const OneOrMany&) const = default;
};

// The names of an enum's values in YAML. Specialise it with
//   template <>
//   struct ingot::EnumNames<Packing> {
//     static constexpr std::pair<Packing, const char*> names[] = {{Packing::none, "none"},
//                                                                 {Packing::greedy, "greedy"}};
//   };
template <class E>
struct EnumNames;

// The name of a value.
template <class E>
const char* enum_name(E value) {
  for (const auto& [each, word] : EnumNames<E>::names) {
    if (each == value) return word;
  }
  return "?";
}

class ConfigReader;

template <class T>
concept Described = std::is_class_v<T> && requires(ConfigReader& visitor, T& value) { describe(visitor, value); };

template <class T>
concept HasShorthand = Described<T> && requires(const std::string& text) {
  { T::from_text(text) } -> std::same_as<T>;
};

// How a type is read, written and described. Specialise it for a type with its own form:
//   static void read(const ConfigNode& node, T& value, const FieldRules& rules);  // node.fail(...) if it does not fit
//   static ConfigNode write(const T& value);
//   static ConfigNode schema(const FieldRules& rules);  // a JSON Schema (draft 2020-12)
template <class T>
struct ConfigType;

namespace config_detail {

void check_rules(const ConfigNode& node, double value, const FieldRules& rules);
ConfigNode number_schema(const char* type, const FieldRules& rules);
ConfigNode type_schema(const char* type);
ConfigNode any_of(std::vector<ConfigNode> choices);
ConfigNode list_schema(ConfigNode item);
ConfigNode enum_schema(const std::vector<std::string>& words);
// Index of the node's word in `words`. An unknown word is a usage error whose hint is the nearest word.
size_t read_word(const ConfigNode& node, const std::vector<std::string>& words);
int64_t read_integer(const ConfigNode& node, int64_t lowest, int64_t highest);

template <class E>
std::vector<std::string> words_of() {
  std::vector<std::string> words;
  for (const auto& [value, word] : EnumNames<E>::names) words.emplace_back(word);
  return words;
}

}  // namespace config_detail

// Reads the fields of one struct from a map.
class ConfigReader {
 public:
  // Errors: usage when `node` is neither a map nor null.
  explicit ConfigReader(const ConfigNode& node);

  template <class T>
  void field(const char* key, T& value, const char*, const FieldRules& rules = {}) {
    if (const ConfigNode* child = take(key, rules)) {
      ConfigType<T>::read(*child, value, rules);
    } else if constexpr (Described<T>) {
      if (!rules.required) ConfigType<T>::read(ConfigNode::absent(node_, key), value, rules);
    }
  }
  template <Described T>
  void section(const char* key, T& value, const char* help, const FieldRules& rules = {}) {
    field(key, value, help, rules);
  }

  // Errors: usage for a key that no field read (with the nearest known key), then for a missing required key.
  void finish() const;

 private:
  const ConfigNode* take(const char* key, const FieldRules& rules);

  const ConfigNode& node_;
  std::vector<std::string> known_;
  std::vector<std::string> missing_;
};

// Collects the values of one struct, with their help texts as comments.
class ConfigWriter {
 public:
  template <class T>
  void field(const char* key, T& value, const char* help, const FieldRules& = {}) {
    ConfigNode child = ConfigType<T>::write(value);
    child.set_comment(help);
    node_.set(key, std::move(child));
  }
  template <Described T>
  void section(const char* key, T& value, const char* help, const FieldRules& rules = {}) {
    field(key, value, help, rules);
  }
  ConfigNode take() { return std::move(node_); }

 private:
  ConfigNode node_ = ConfigNode::map();
};

// Collects the JSON Schema of one struct; defaults are the values with which it was made.
class SchemaWriter {
 public:
  template <class T>
  void field(const char* key, T& value, const char* help, const FieldRules& rules = {}) {
    add(key, ConfigType<T>::schema(rules), help, rules.required);
    if constexpr (!Described<T>) {
      if (!rules.required) add_default(key, ConfigType<T>::write(value));
    }
    if (rules.alias != nullptr) add_alias(rules.alias, ConfigType<T>::schema(rules), key);
  }
  template <Described T>
  void section(const char* key, T& value, const char* help, const FieldRules& rules = {}) {
    field(key, value, help, rules);
  }
  ConfigNode take();

 private:
  void add(const char* key, ConfigNode schema, const char* help, bool required);
  void add_default(const char* key, ConfigNode value);
  void add_alias(const char* key, ConfigNode schema, const char* now);

  ConfigNode properties_ = ConfigNode::map();
  std::vector<ConfigNode> required_;
};

template <>
struct ConfigType<bool> {
  static void read(const ConfigNode& node, bool& value, const FieldRules&) { value = node.as_bool(); }
  static ConfigNode write(bool value) { return ConfigNode::boolean(value); }
  static ConfigNode schema(const FieldRules&) { return config_detail::type_schema("boolean"); }
};

template <std::signed_integral T>
struct ConfigType<T> {
  static void read(const ConfigNode& node, T& value, const FieldRules& rules) {
    value =
        static_cast<T>(config_detail::read_integer(node, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
    config_detail::check_rules(node, static_cast<double>(value), rules);
  }
  static ConfigNode write(T value) { return ConfigNode::integer(value); }
  static ConfigNode schema(const FieldRules& rules) { return config_detail::number_schema("integer", rules); }
};

template <>
struct ConfigType<double> {
  static void read(const ConfigNode& node, double& value, const FieldRules& rules) {
    value = node.as_double();
    config_detail::check_rules(node, value, rules);
  }
  static ConfigNode write(double value) { return ConfigNode::number(value); }
  static ConfigNode schema(const FieldRules& rules) { return config_detail::number_schema("number", rules); }
};

template <>
struct ConfigType<std::string> {
  static void read(const ConfigNode& node, std::string& value, const FieldRules&) { value = node.as_text(); }
  static ConfigNode write(const std::string& value) { return ConfigNode::text(value); }
  static ConfigNode schema(const FieldRules&) { return config_detail::type_schema("string"); }
};

template <class E>
  requires std::is_enum_v<E>
struct ConfigType<E> {
  static void read(const ConfigNode& node, E& value, const FieldRules&) {
    value = EnumNames<E>::names[config_detail::read_word(node, config_detail::words_of<E>())].first;
  }
  static ConfigNode write(E value) { return ConfigNode::text(enum_name(value)); }
  static ConfigNode schema(const FieldRules&) { return config_detail::enum_schema(config_detail::words_of<E>()); }
};

template <class T>
struct ConfigType<std::optional<T>> {
  static void read(const ConfigNode& node, std::optional<T>& value, const FieldRules& rules) {
    if (node.is_null()) {
      value.reset();
      return;
    }
    // A section is read over the existing value; anything else is assigned.
    if (!value) value.emplace();
    ConfigType<T>::read(node, *value, rules);
  }
  static ConfigNode write(const std::optional<T>& value) { return value ? ConfigType<T>::write(*value) : ConfigNode(); }
  static ConfigNode schema(const FieldRules& rules) {
    return config_detail::any_of({ConfigType<T>::schema(rules), config_detail::type_schema("null")});
  }
};

template <class T>
struct ConfigType<std::vector<T>> {
  static void read(const ConfigNode& node, std::vector<T>& value, const FieldRules& rules) {
    if (!node.is_list()) node.fail("a list");
    value.clear();
    for (const ConfigNode& item : node.items()) {
      T element{};
      ConfigType<T>::read(item, element, rules);
      value.push_back(std::move(element));
    }
  }
  static ConfigNode write(const std::vector<T>& value) {
    std::vector<ConfigNode> items;
    for (const T& element : value) items.push_back(ConfigType<T>::write(element));
    return ConfigNode::list(std::move(items));
  }
  static ConfigNode schema(const FieldRules& rules) { return config_detail::list_schema(ConfigType<T>::schema(rules)); }
};

template <class T>
struct ConfigType<OneOrMany<T>> {
  static void read(const ConfigNode& node, OneOrMany<T>& value, const FieldRules& rules) {
    if (node.is_list()) return ConfigType<std::vector<T>>::read(node, value.values, rules);
    if (node.is_null()) node.fail("one value or a list of them");
    T element{};
    ConfigType<T>::read(node, element, rules);
    value.values.clear();
    value.values.push_back(std::move(element));
  }
  static ConfigNode write(const OneOrMany<T>& value) { return ConfigType<std::vector<T>>::write(value.values); }
  static ConfigNode schema(const FieldRules& rules) {
    return config_detail::any_of({ConfigType<T>::schema(rules), ConfigType<std::vector<T>>::schema(rules)});
  }
};

template <class T>
struct ConfigType<AutoOr<T>> {
  static void read(const ConfigNode& node, AutoOr<T>& value, const FieldRules& rules) {
    if (node.is_scalar() && node.as_text() == "auto") {
      value.value.reset();
      return;
    }
    T number{};
    try {
      ConfigType<T>::read(node, number, {});
    } catch (const std::exception&) {
      node.fail("a number or auto");
    }
    ConfigType<T>::read(node, number, rules);
    value.value = number;
  }
  static ConfigNode write(const AutoOr<T>& value) {
    return value.is_auto() ? ConfigNode::text("auto") : ConfigType<T>::write(*value.value);
  }
  static ConfigNode schema(const FieldRules& rules) {
    return config_detail::any_of({ConfigType<T>::schema(rules), config_detail::enum_schema({"auto"})});
  }
};

template <Described T>
struct ConfigType<T> {
  static void read(const ConfigNode& node, T& value, const FieldRules&) {
    if constexpr (HasShorthand<T>) {
      if (node.is_scalar()) {
        value = T::from_text(node.as_text());
        return;
      }
    }
    ConfigReader reader(node);
    describe(reader, value);
    reader.finish();
  }
  static ConfigNode write(const T& value) {
    T copy = value;  // describe() takes a non-const reference, because the same function also reads
    ConfigWriter writer;
    describe(writer, copy);
    return writer.take();
  }
  static ConfigNode schema(const FieldRules&) {
    T defaults{};
    SchemaWriter writer;
    describe(writer, defaults);
    if constexpr (HasShorthand<T>) {
      return config_detail::any_of({config_detail::type_schema("string"), writer.take()});
    } else {
      return writer.take();
    }
  }
};

// Reads `node` over `value` (the struct's own defaults if not given). Errors: usage.
template <Described T>
T read_config(const ConfigNode& node, T value = {}) {
  ConfigType<T>::read(node, value, {});
  return value;
}

// The whole struct as commented YAML that reads back as the same struct.
template <Described T>
std::string write_config(const T& value) {
  return ConfigType<T>::write(value).to_yaml();
}

ConfigNode titled_schema(const ConfigNode& schema, std::string_view title);

// JSON Schema, draft 2020-12.
template <Described T>
std::string config_schema(std::string_view title) {
  return titled_schema(ConfigType<T>::schema({}), title).to_json();
}

}  // namespace ingot
