// The filters, tests, methods and global functions of the template language.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace ingot::text::jinja {

class Context;

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
bool is_global(std::string_view name);

// Errors of all: usage, naming the callee.
Value apply_filter(Context& context, const std::string& name, const Value& value, const Arguments& arguments);
bool apply_test(Context& context, const std::string& name, const Value& value, const Arguments& arguments);
Value call_global(Context& context, const std::string& name, const Arguments& arguments);
Value call_method(Context& context, const Value& self, const std::string& name, const Arguments& arguments);
// Whether values of this type have the method.
bool has_method(const Value& self, std::string_view name);
bool has_string_method(std::string_view name);
// Whether Python's type has the method but this implementation does not: its use is refused by name.
bool is_refused_method(const Value& self, std::string_view name);
Value call_string_method(Context& context, const Text& self, const std::string& name, const Arguments& arguments);

// Binds arguments to parameter names as Python does; parameters without an argument are Undefined. Errors: usage for
// too many, unknown or duplicate arguments, or a missing required one.
std::vector<Value> bind(Context& context, const std::string& callee, const Arguments& arguments,
                        const std::vector<std::string_view>& parameters, size_t num_required = 0);

// str.format with fields that are empty, numbers or names; fields cannot access attributes or items of values.
TaintedString format_braces(Context& context, const TaintedString& format, const Arguments& arguments);
// Python's '%' formatting of strings: %s %d %%.
TaintedString format_percent(Context& context, const TaintedString& format, const Value& arguments);

// Converts JSON to a value. All strings of the result, including keys, have this origin.
Value from_json(Context& context, const nlohmann::ordered_json& json, Origin origin, int depth = 0);
// json.dumps; the whole result is content.
struct JsonStyle {
  int indent = -1;  // spaces for each level; -1: a single line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;  // escape every non-ASCII character
};
TaintedString to_json(Context& context, const Value& value, const JsonStyle& style);

}  // namespace ingot::text::jinja
