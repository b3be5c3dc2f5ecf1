// Grammars for constrained decoding, compiled from a JSON Schema, EBNF, a regular expression or a list of texts.
//
// Supported and refused features of JSON Schema and EBNF: docs/grammar.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace ingot::grammar {

class Automaton;

// Immutable; may be shared by any number of threads.
class Grammar {
 public:
  Grammar(Automaton automaton, int32_t start);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  const Automaton& automaton() const { return *automaton_; }
  int32_t start() const { return start_; }  // a term of automaton()

 private:
  std::unique_ptr<const Automaton> automaton_;
  int32_t start_;
};

using GrammarPtr = std::shared_ptr<const Grammar>;

// White space between the tokens of JSON.
enum class Whitespace : uint8_t {
  none,       // no white space
  formatted,  // as pretty-printers write it: at most one space, or one line end followed by at most 64 spaces or tabs
};

struct JsonOptions {
  Whitespace whitespace = Whitespace::formatted;
  // Whether properties must appear in the order of the schema, followed by additional ones; false: in any order.
  bool in_order = false;
  // Refuse keywords that are unknown in the draft and formats that are not asserted; false: they are annotations.
  bool strict = false;
  size_t max_text = 4 << 20;             // bytes of the schema text
  int64_t max_cases = 4096;              // max alternatives of one combination of schemas
  int64_t max_schemas = 20'000;          // max combinations of schemas in the whole document
  double max_seconds = 30;               // max compile time, checked at each step of an expansion
  double (*seconds)() = steady_seconds;  // the clock for max_seconds
};

// Compiles a schema text, in the draft that its `$schema` names; without `$schema`, 2020-12. `unknown`, if not null,
// receives the JSON pointers of the keywords that the draft does not know and of the formats that are not asserted, for
// the schemas that are in use. Errors: usage for a text that is not a schema, and for a schema without any instance;
// unsupported for a keyword that is not possible in its place (where `strict` is set: or not known), with its name and
// JSON pointer; resource beyond the limits.
GrammarPtr compile_json_schema(std::string_view schema, const JsonOptions& options = {},
                               std::vector<std::string>* unknown = nullptr);

// Any JSON object.
GrammarPtr any_json(const JsonOptions& options = {});

// llama.cpp's dialect (GBNF): rules `name ::= ...`, with start rule `root`; "literals", [classes], ., groups, |, * + ?
// {m,n}, # comments. Errors: usage for a malformed text, with its line; unsupported for a left-recursive rule and for
// tokens <...>; resource.
GrammarPtr compile_ebnf(std::string_view text);

inline constexpr size_t max_pattern_bytes = 64 << 10;  // of a regular expression, also of `pattern` in a schema

// The texts that a regular expression (dialect: grammar/regex.h) matches from end to end. Errors: as
// pattern_language's; usage for an expression that matches nothing.
GrammarPtr compile_regex(std::string_view pattern);

// Exactly one of these texts. Errors: usage for an empty list or a text that is not UTF-8; resource.
GrammarPtr compile_choice(std::span<const std::string> texts);

}  // namespace ingot::grammar
