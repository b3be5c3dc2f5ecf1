// Values of the template language. Containers live in a Heap and are freed all at once, so that cycles and deep
// nesting, which templates can make, need no care.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/marked_string.h"

namespace ingot::text::jinja {

struct List;
struct Dict;
struct Callable;

// A string that values share, so that a value is copied in no time. It never changes. What it is made from says which
// of its bytes are content: a plain std::string is no value, so that no operation forgets where its result comes from.
class Text {
 public:
  // Not explicit: strings are values.
  Text(MarkedString text) : text_(std::make_shared<const MarkedString>(std::move(text))) {}
  Text(const char* text) : Text(MarkedString(text, Origin::author)) {}  // the renderer's own words
  const MarkedString& operator*() const { return *text_; }
  const MarkedString* operator->() const { return text_.get(); }
  bool is_shared() const { return text_.use_count() > 1; }
  // Marked by the filter safe: what is added to such a string is escaped for HTML.
  bool is_safe() const { return safe_; }
  Text marked_safe() const {
    Text copy = *this;
    copy.safe_ = true;
    return copy;
  }

 private:
  std::shared_ptr<const MarkedString> text_;
  bool safe_ = false;
};

struct Undefined {
  Text what;  // for the error when it is used, e.g. "'x' is undefined"
};
struct None {};

using Value = std::variant<None, Undefined, bool, int64_t, double, Text, List*, Dict*, const Callable*>;

struct List {
  // Lazy ones (what map, select and dict.items() give) have no JSON and are not printed, as in Python, but have all
  // items.
  enum class Kind { list, tuple, lazy };
  std::vector<Value> items;
  Kind kind = Kind::list;

  bool is_tuple() const { return kind == Kind::tuple; }
};

struct Dict {
  enum class Role { mapping, name_space, loop };
  std::vector<std::pair<Value, Value>> items;  // in order of insertion; keys are strings, numbers, booleans or none
  Role role = Role::mapping;

  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value, Origin of_key = Origin::author);
  // The same for any key; 1, 1.0 and true are one.
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

// The string of a value, nullptr when it is none.
inline const std::string* text_of(const Value& value) {
  const auto* text = std::get_if<Text>(&value);
  return text == nullptr ? nullptr : &(*text)->text();
}

// What the renderer or the template itself says.
inline Text author_text(std::string text) { return MarkedString(std::move(text), Origin::author); }

bool truth(const Value& value);

// What Python calls the type, for errors: "str", "dict", ...
const char* type_name(const Value& value);

// Python's repr of a float.
std::string float_text(double value);

// Python's isspace for one character.
bool is_python_space(uint32_t code_point);

// str.lower: as lower_case, with the Greek sigma that ends a word.
std::string python_lower(std::string_view text);

// str.capitalize: the first character in title case, the others in lower case.
std::string python_capitalize(std::string_view text);

// Characters of `text`; invalid bytes are characters of their own.
size_t count_characters(std::string_view text);

// Where the first `part` of `text` at or behind `at` begins, std::string::npos without one; in linear time.
size_t find_text(std::string_view text, std::string_view part, size_t at = 0);

// str.strip: `chars` is a set of characters, nullptr for white space.
std::string_view strip(std::string_view text, const std::string* chars, bool left, bool right);

}  // namespace ingot::text::jinja
