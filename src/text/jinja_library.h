// The filters, tests, methods and global functions of the template language.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace ingot::text::jinja {

class Context;

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
bool is_global(std::string_view name);

// All may fail with usage errors that name what was called.
Value apply_filter(Context& context, const std::string& name, const Value& value, const Arguments& arguments);
bool apply_test(Context& context, const std::string& name, const Value& value, const Arguments& arguments);
Value call_global(Context& context, const std::string& name, const Arguments& arguments);
Value call_method(Context& context, const Value& self, const std::string& name, const Arguments& arguments);
// Whether values of this type have the method.
bool has_method(const Value& self, std::string_view name);
bool has_string_method(std::string_view name);
// Whether Python's values of this type have it and ours do not: a use is refused by name.
bool is_refused_method(const Value& self, std::string_view name);
Value call_string_method(Context& context, const Text& self, const std::string& name, const Arguments& arguments);

// Binds arguments to parameter names as Python does; parameters that are not given stay Undefined.
// Errors: usage for too many, unknown or doubly given ones.
std::vector<Value> bind(Context& context, const std::string& callee, const Arguments& arguments,
                        const std::vector<std::string_view>& parameters, size_t num_required = 0);

// str.format with fields that are empty, numbers or names; they cannot reach into values.
MarkedString format_braces(Context& context, const MarkedString& format, const Arguments& arguments);
// Python's '%' formatting of strings: %s %d %%.
MarkedString format_percent(Context& context, const MarkedString& format, const Value& arguments);

// Strings of the result, keys too, are of that origin.
Value from_json(Context& context, const nlohmann::ordered_json& json, Origin origin, int depth = 0);
// json.dumps; all of it is content.
struct JsonStyle {
  int indent = -1;  // spaces a level; -1 for one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;  // escape every other character
};
MarkedString to_json(Context& context, const Value& value, const JsonStyle& style);

}  // namespace ingot::text::jinja
