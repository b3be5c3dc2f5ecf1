// The texts of JSON Schema's formats.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/characters.h"

namespace ingot::grammar {

struct Format {
  TermId language = 0;   // of the texts themselves
  bool is_exact = true;  // false: some texts of the format are left out, so its opposite is not known
};

// Whether the specifications know a format of this name.
bool is_format(std::string_view name);

// The format of this name; nothing when `is_format` says no.
std::optional<Format> format_named(TermPool& terms, std::string_view name);

}  // namespace ingot::grammar
