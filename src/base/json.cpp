#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace ingot {

namespace {

using Json = nlohmann::ordered_json;

// Builds the value from the parser's events.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const Json& object = *open_.back().value;
    if (!is_new(open_.back(), name)) {
      throw_error(ErrorKind::corrupt, "is ambiguous: the key {} is written twice", shown(name));
    }
    if (object.size() == limits_.keys) {
      throw_error(ErrorKind::corrupt, "has an object of more than {} keys", limits_.keys);
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception& error) override {
    if (error.id == 406) {
      throw_error(ErrorKind::corrupt, "is out of range: a number before byte {} is too large", at);
    }
    if (!is_utf8(text_)) {
      throw_hint(ErrorKind::corrupt, "convert it: iconv -f ISO-8859-1 -t UTF-8 in.jsonl > out.jsonl",
                 "is not UTF-8: error at byte {}", at);
    }
    throw_error(ErrorKind::corrupt, "is not JSON: error at byte {}", at);
  }

  Json take() { return std::move(root_); }

 private:
  struct Open {
    Json* value;
    std::unordered_set<std::string> keys = {};  // of an object with many keys
  };

  // With few keys, compares them one by one, as ordered_json does.
  static bool is_new(Open& open, const std::string& name) {
    constexpr size_t few_keys = 64;
    const Json& object = *open.value;
    if (object.size() < few_keys) return !object.contains(name);
    if (open.keys.empty()) {
      for (const auto& member : object.items()) open.keys.insert(member.key());
    }
    return open.keys.insert(name).second;
  }

  static std::string shown(const std::string& name) {
    constexpr size_t max_shown = 60;
    return json_escape(name.size() > max_shown ? name.substr(0, max_shown) + "..." : name);
  }

  // Adds a value to the innermost open container. The outer ones get no members meanwhile, so addresses stay valid.
  Json* add_value(Json value) {
    if (++num_values_ > limits_.values) throw_error(ErrorKind::corrupt, "has more than {} values", limits_.values);
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    // Appended without a look-up: key() has checked that there is no such key yet.
    Json::object_t::Container& members = parent.get_ref<Json::object_t&>();
    return &members.emplace_back(std::move(key_), std::move(value)).second;
  }
  bool add(Json value) {
    add_value(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() >= limits_.depth) {
      throw_error(ErrorKind::corrupt, "is nested deeper than {} levels", limits_.depth);
    }
    open_.push_back({add_value(std::move(value))});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const JsonLimits& limits_;
  Json root_;
  std::vector<Open> open_;
  std::string key_;
  size_t num_values_ = 0;
};

// The maximum nesting depth of brackets outside of strings. For text that is not JSON, it is at least the depth before
// the first error.
int depth_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

template <class T>
T parse_lenient(std::string_view text) {
  if (depth_of(text) > max_json_depth) {
    throw_error(ErrorKind::corrupt, "is nested deeper than {} levels", max_json_depth);
  }
  try {
    return T::parse(text);
  } catch (const typename T::exception& error) {
    throw_error(ErrorKind::corrupt, "is not JSON: {}", error.what());
  }
}

}  // namespace

Json parse_json(std::string_view text, const JsonLimits& limits) {
  Builder builder(text, limits);
  Json::sax_parse(text, &builder);
  return builder.take();
}

Json parse_json_object(std::string_view text) {
  Json value = parse_json(text);
  if (!value.is_object()) {
    throw_hint(ErrorKind::corrupt, "each line holds one JSON object; 'jq -c .[]' makes lines of a JSON array",
               "is a JSON value of type {}, not an object", value.type_name());
  }
  return value;
}

nlohmann::json parse_lenient_json(std::string_view text) { return parse_lenient<nlohmann::json>(text); }

Json parse_lenient_ordered_json(std::string_view text) { return parse_lenient<Json>(text); }

Json try_parse_json(std::string_view text) {
  if (depth_of(text) > max_json_depth) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

}  // namespace ingot
