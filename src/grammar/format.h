// The texts of JSON Schema's formats.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/characters.h"

namespace ingot::grammar {

struct Format {
  TermId language = 0;   // inside the quotes of a JSON string
  bool is_exact = true;  // false: some texts of the format are left out, so its opposite is not known
};

// The format of this name; nothing when it is not one of those supported (docs/grammar.md lists them).
std::optional<Format> format_named(TermPool& terms, std::string_view name);

// Their names, for errors.
std::string_view format_names();

}  // namespace ingot::grammar
