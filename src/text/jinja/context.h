// The state of one rendering: its heap, limits and current line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/nesting.h"
#include "text/jinja/jinja.h"
#include "text/jinja/value.h"

namespace ingot::text::jinja {

constexpr int max_depth = 500;                       // max nesting of evaluation
constexpr int max_value_depth = max_json_depth + 8;  // of containers compared, printed or read from JSON

class Context {
 public:
  Context(std::string_view name, const RenderOptions& options) : name_(name), options_(options) {}

  // Throws a run-time error at the current line.
  template <class... Args>
  [[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) const {
    throw_error(kind, "{}:{}: {}", name_, line, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::usage, format, std::forward<Args>(args)...);
  }

  void step(size_t count = 1) {
    steps_ += count;
    if (steps_ > options_.max_steps)
      fail(ErrorKind::resource, "rendering takes more than {} steps", options_.max_steps);
  }
  // Counts steps for work that is linear in a size: bytes of a string, entries of a dict.
  void scan(size_t size) { step(size / 64); }
  // Counts bytes of new strings and lists; to be called before a large one is created.
  void charge(size_t bytes) {
    if (bytes > options_.max_memory - bytes_) {
      fail(ErrorKind::resource, "rendering makes more than {} bytes of strings and lists", options_.max_memory);
    }
    bytes_ += bytes;
  }
  // Applies `map`, a case mapping whose result is about as large as the text. The memory of the mapped text and of its
  // mapped runs is charged in advance.
  template <class Map>
  TaintedString map_case(const TaintedString& text, Map map) {
    charge(2 * text.memory());
    return map_runs(text, map);
  }
  void write(TaintedString& out, const TaintedString& text) {
    charge(text.memory());
    check_output(out, text.size());
    out.append(text);
  }
  void write(TaintedString& out, std::string_view text, Origin origin) {
    charge(text.size());
    check_output(out, text.size());
    out.append(text, origin);
  }

  List* new_list(std::vector<Value> items = {}, List::Kind kind = List::Kind::list) {
    step(1 + items.size());
    charge(sizeof(List) + items.size() * sizeof(Value));
    return &heap_.lists.emplace_back(List{std::move(items), kind});
  }
  Dict* new_dict(Dict::Role role = Dict::Role::mapping) {
    step();
    charge(sizeof(Dict));
    return &heap_.dicts.emplace_back(Dict{{}, role});
  }
  // dict.set and dict.find, counting their steps.
  void set(Dict& dict, std::string_view key, Value value, Origin of_key = Origin::author) {
    step(1 + dict.items.size() / 16);
    charge(2 * sizeof(Value) + key.size());
    dict.set(key, std::move(value), of_key);
  }
  void set_key(Dict& dict, const Value& key, Value value) {
    if (!is_key(key)) fail(ErrorKind::unsupported, "a dict key of type {}", type_name(key));
    step(1 + dict.items.size() / 16);
    charge(2 * sizeof(Value));
    dict.set_key(key, std::move(value));
  }
  const Value* find(const Dict& dict, std::string_view key) {
    step(dict.items.size() / 16);
    return dict.find(key);
  }
  // Errors: usage for a key that is not hashable in Python.
  const Value* find_key(const Dict& dict, const Value& key) {
    if (is<List*>(key) && std::get<List*>(key)->is_tuple()) return nullptr;
    if (is<List*>(key) || is<Dict*>(key)) fail("a {} cannot be a dict key", type_name(key));
    step(dict.items.size() / 16);
    return is_key(key) ? dict.find_key(key) : nullptr;
  }
  const Callable* new_callable(Callable callable) {
    step();
    charge(sizeof(Callable));
    return &heap_.callables.emplace_back(std::move(callable));
  }
  const RenderOptions& options() const { return options_; }

  struct Depth {
    explicit Depth(Context& context) : context_(context) {
      if (++context_.depth_ > max_depth) context_.fail(ErrorKind::resource, "too deeply nested");
    }
    ~Depth() { --context_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Context& context_;
  };

  int line = 1;

 private:
  void check_output(const TaintedString& out, size_t more) const {
    if (out.size() + more <= options_.max_output) return;
    fail(ErrorKind::resource, "the output is longer than {} bytes", options_.max_output);
  }

  std::string_view name_;
  const RenderOptions& options_;
  Heap heap_;
  size_t steps_ = 0;
  size_t bytes_ = 0;
  int depth_ = 0;
};

// str(): what a print tag writes. The text of a list or dict is content; that of a number is not.
TaintedString to_text(Context& context, const Value& value);
// Python's ==. Errors: resource for containers that are nested too deeply.
bool equal(Context& context, const Value& a, const Value& b, int depth = 0);
// Python's <. Errors: usage for values that have no order.
bool less(Context& context, const Value& a, const Value& b, int depth = 0);
// Python's `item in container`.
bool contains(Context& context, const Value& container, const Value& item);
// The values that a loop iterates over: items, keys, characters; none for undefined.
std::vector<Value> iterate(Context& context, const Value& value);
size_t length(Context& context, const Value& value);
// value.name and value[key]; Undefined if missing.
Value get_attribute(Context& context, const Value& value, const std::string& name);
Value get_item(Context& context, const Value& value, const Value& key);
Value binary(Context& context, std::string_view op, const Value& left, const Value& right);
// Errors: usage for names that transformers does not allow in namespaces.
void check_namespace_name(Context& context, std::string_view name);
// The integer of an int or bool. Errors: usage, naming `what`.
int64_t to_integer(Context& context, const Value& value, const char* what);
// The string itself. Errors: usage, naming `what`.
const std::string& to_string(Context& context, const Value& value, const char* what);
const TaintedString& to_marked(Context& context, const Value& value, const char* what);

}  // namespace ingot::text::jinja
