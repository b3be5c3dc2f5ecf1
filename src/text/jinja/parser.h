// Parses templates to statements, with Jinja2's grammar and precedences.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace ingot::text::jinja {

// Errors: corrupt for invalid syntax, unsupported for statements, filters and tests that are not known; both with the
// line.
Body parse(std::string_view source, std::string_view name);

}  // namespace ingot::text::jinja
