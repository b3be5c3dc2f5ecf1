// Values of the template language. Containers live in a Heap and are freed all at once, so that cycles and deep
// nesting, which templates can make, need no care.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ingot::text::jinja {

struct List;
struct Dict;
struct Callable;

struct Undefined {
  std::string what;  // for the error when it is used, e.g. "'x' is undefined"
};
struct None {};

using Value = std::variant<Undefined, None, bool, int64_t, double, std::string, List*, Dict*, const Callable*>;

struct List {
  std::vector<Value> items;
  bool tuple = false;
};

struct Dict {
  enum class Role { mapping, name_space, loop };
  std::vector<std::pair<std::string, Value>> items;  // in order of insertion
  Role role = Role::mapping;

  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value);
};

struct Macro;

struct Callable {
  enum class Kind { macro, function, method };
  Kind kind = Kind::function;
  std::string name;
  const Macro* macro = nullptr;
  Value self;  // of a method
};

struct Heap {
  std::deque<List> lists;
  std::deque<Dict> dicts;
  std::deque<Callable> callables;
};

// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

template <class T>
bool is(const Value& value) {
  return std::holds_alternative<T>(value);
}

bool truth(const Value& value);

// What Python calls the type, for errors: "str", "dict", ...
const char* type_name(const Value& value);

// Python's repr of a float.
std::string float_text(double value);

// Python's isspace for one character.
bool is_python_space(uint32_t code_point);

// str.strip: `chars` is a set of characters, nullptr for white space.
std::string_view strip(std::string_view text, const std::string* chars, bool left, bool right);

}  // namespace ingot::text::jinja
