// Splits a template into tokens, applying the white-space rules of trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingot::text::jinja {

struct TokenText {
  enum class Kind { data, print_begin, print_end, block_begin, block_end, name, string, integer, real, op, end };
  Kind kind;
  std::string text;  // for strings: with escapes decoded
  int line;
};

// `name` is for errors. Errors: corrupt, with the line, for an unclosed tag, string or comment, or an unexpected
// character.
std::vector<TokenText> lex(std::string_view source, std::string_view name);

}  // namespace ingot::text::jinja
