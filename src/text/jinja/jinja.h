// A sandboxed renderer for the subset of Jinja2 that chat templates use (chat_template_utils.py of
// github.com/huggingface/transformers).
//
// Environment: trim_blocks and lstrip_blocks on, keep_trailing_newline and autoescape off, break and continue, the {%
// generation %} block, and the globals raise_exception, strftime_now, range, namespace and dict. Results equal those of
// Jinja2, with these differences: integers have 64 bits (overflow is an error), the result of a lazy filter can be
// iterated twice and has a length, list.append works, and filters drop the mark of `safe`. docs/templates.md lists the
// supported features. Templates can access nothing but their variables; time, nesting and memory are limited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/tainted_string.h"

namespace ingot::text::jinja {

struct Program;

struct RenderOptions {
  size_t max_steps = 10'000'000;
  size_t max_memory = size_t{1} << 29;  // total bytes of all strings and lists created
  size_t max_output = size_t{1} << 26;  // bytes
  std::optional<int64_t> now;           // seconds since 1970 for strftime_now; unset: the system clock
};

struct Rendered {
  std::string text;
  ByteRanges content;     // byte ranges that come from the caller, not from the template
  ByteRanges generation;  // byte ranges written by generation blocks; may be empty ranges
};

// Immutable and thread-safe after construction.
class Template {
 public:
  // `name` is for errors. Errors: corrupt for invalid syntax, unsupported for statements, filters and tests that are
  // not known, naming them; both with the line.
  Template(std::string_view source, std::string_view name);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // `variables` is an object. All its strings, including keys, are content through every operation; where an operation
  // cannot separate content from other text, its whole result is content. The exception is the "role" of an item of
  // `messages` if it is a word (ASCII letters, digits, '_' and '-'): it counts as the template's text, since templates
  // build tokens from it ('<|' + role + '|>'). Numbers and booleans that are printed on their own are not content.
  // `own` is an object of variables whose strings are not content. Errors: usage for raise_exception and what raises in
  // Python, with the line; unsupported for features that are not known; resource beyond the limits.
  Rendered render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const;
  Rendered render(const nlohmann::ordered_json& variables, const nlohmann::ordered_json& author_variables,
                  const RenderOptions& options) const;

  bool has_generation_blocks() const;

 private:
  std::unique_ptr<const Program> program_;
};

}  // namespace ingot::text::jinja
