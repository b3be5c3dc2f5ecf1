// The languages of JSON Schema's `format` keyword.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/characters.h"

namespace ingot::grammar {

struct Format {
  TermId language = 0;   // of the texts themselves, without JSON quotes and escapes
  bool is_exact = true;  // false: the language is only a subset of the format, so it has no usable complement
};

// Whether the JSON Schema specifications define a format of this name.
bool is_format(std::string_view name);

// The format of this name; nullopt when `is_format` is false.
std::optional<Format> format_named(TermPool& terms, std::string_view name);

}  // namespace ingot::grammar
