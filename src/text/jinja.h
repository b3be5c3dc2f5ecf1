// A sandboxed renderer for the part of Jinja2 that chat templates use (specs/hf_models.md, section 5).
//
// Environment: trim_blocks and lstrip_blocks on, keep_trailing_newline and autoescape off, break and continue, the
// {% generation %} block, and the globals raise_exception, strftime_now, range, namespace and dict. Results are those
// of Jinja2, with these differences: integers have 64 bits (more is an error), a lazy filter's result can be gone
// through twice and has a length, list.append works, and a filter forgets what safe said. docs/templates.md lists what
// is known. Nothing outside of the variables can be reached; time, nesting and memory are limited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/marked_string.h"

namespace ingot::text::jinja {

struct Program;

struct RenderOptions {
  size_t max_steps = 10'000'000;
  size_t max_memory = size_t{1} << 29;  // bytes of all strings and lists that are made
  size_t max_output = size_t{1} << 26;  // bytes
  std::optional<int64_t> now;           // seconds since 1970 for strftime_now; unset is the clock's time
};

struct Rendered {
  std::string text;
  ByteRanges content;     // which bytes of the text are the caller's, not the template's
  ByteRanges generation;  // of what generation blocks wrote; may be empty ones
};

// Immutable and thread-safe after construction.
class Template {
 public:
  // `name` is for errors. Errors: corrupt for wrong syntax, unsupported for statements, filters and tests that are not
  // known, naming them; both with the line.
  Template(std::string_view source, std::string_view name);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // `variables` is an object; its strings, those that are keys too, are content, whatever the template does with them:
  // where an operation cannot keep apart what is content and what is not, all of its result is. Only the "role" of an
  // item of `messages` that is a word (ASCII letters, digits, '_' and '-') counts as the template's, since templates
  // make tokens of it ('<|' + role + '|>'). Numbers and booleans, printed by themselves, are no content. `own` is an
  // object of variables whose strings are not content. Errors: usage for raise_exception and what Python would raise,
  // with the line; unsupported for what is not known; resource beyond the limits.
  Rendered render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const;
  Rendered render(const nlohmann::ordered_json& variables, const nlohmann::ordered_json& own,
                  const RenderOptions& options) const;

  bool has_generation_blocks() const;

 private:
  std::unique_ptr<const Program> program_;
};

}  // namespace ingot::text::jinja
