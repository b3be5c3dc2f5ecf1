// Values of the template language. Containers live in a Heap and are freed all at once, so cycles and deep nesting,
// which templates can create, are harmless.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/tainted_string.h"

namespace ingot::text::jinja {

struct List;
struct Dict;
struct Callable;

// An immutable string that values share, so that copying a value is cheap. It is constructed from a TaintedString,
// which records which bytes are content, and not from a std::string, so that no operation loses the origin of its
// result.
class Text {
 public:
  // Not explicit, so that a TaintedString converts to a Value.
  Text(TaintedString text) : text_(std::make_shared<const TaintedString>(std::move(text))) {}
  Text(const char* text) : Text(TaintedString(text, Origin::author)) {}  // literals of the renderer
  const TaintedString& operator*() const { return *text_; }
  const TaintedString* operator->() const { return text_.get(); }
  bool is_shared() const { return text_.use_count() > 1; }
  // Whether the filter `safe` marked it: strings added to it are HTML-escaped.
  bool is_safe() const { return safe_; }
  Text marked_safe() const {
    Text copy = *this;
    copy.safe_ = true;
    return copy;
  }

 private:
  std::shared_ptr<const TaintedString> text_;
  bool safe_ = false;
};

struct Undefined {
  Text what;  // the error message when it is used, e.g. "'x' is undefined"
};
struct None {};

using Value = std::variant<None, Undefined, bool, int64_t, double, Text, List*, Dict*, const Callable*>;

struct List {
  // `lazy` is the result of map, select, dict.items() and the like: as in Python it can be neither printed nor
  // converted to JSON, but its items are computed eagerly.
  enum class Kind { list, tuple, lazy };
  std::vector<Value> items;
  Kind kind = Kind::list;

  bool is_tuple() const { return kind == Kind::tuple; }
};

struct Dict {
  enum class Role { mapping, name_space, loop };
  std::vector<std::pair<Value, Value>> items;  // in insertion order; keys are strings, numbers, booleans or none
  Role role = Role::mapping;

  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value, Origin of_key = Origin::author);
  // The same for any key; 1, 1.0 and true are equal keys.
  const Value* find_key(const Value& key) const;
  void set_key(const Value& key, Value value);
};

bool is_key(const Value& value);

struct Macro;

struct Callable {
  enum class Kind { macro, function, method };
  Kind kind = Kind::function;
  std::string name;
  const Macro* macro = nullptr;
  Value self;  // the object of a method
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

inline bool is_number(const Value& value) { return is<bool>(value) || is<int64_t>(value) || is<double>(value); }

// The string of a value; nullptr if it is not a string.
inline const std::string* text_of(const Value& value) {
  const auto* text = std::get_if<Text>(&value);
  return text == nullptr ? nullptr : &(*text)->text();
}

// A string of the renderer or the template, not content.
inline Text author_text(std::string text) { return TaintedString(std::move(text), Origin::author); }

bool truth(const Value& value);

// Python's name of the type, for errors: "str", "dict", ...
const char* type_name(const Value& value);

// Python's repr of a float.
std::string float_text(double value);

// Python's isspace for one character.
bool is_python_space(uint32_t code_point);

// str.lower: lower_case, plus the final form of the Greek sigma at the end of a word.
std::string python_lower(std::string_view text);

// str.capitalize: the first character in title case, the others in lower case.
std::string python_capitalize(std::string_view text);

// The number of characters of `text`; an invalid byte counts as one character.
size_t count_characters(std::string_view text);

// The position of the first occurrence of `part` in `text` at or after `at`; npos if there is none. Linear time.
size_t find_text(std::string_view text, std::string_view part, size_t at = 0);

// str.strip: `chars` is a set of characters; nullptr: white space.
std::string_view strip(std::string_view text, const std::string* chars, bool left, bool right);

}  // namespace ingot::text::jinja
