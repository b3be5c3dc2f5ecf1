// The function tools of a request, and which of them may be called.
#pragma once

#include <string>
#include <vector>

#include "server/fields.h"
#include "server/requests.h"

namespace ingot::server {

constexpr size_t max_tools = 128;

// Reads a function's name, description, parameters and strict. Errors: ApiError.
Tool read_function(Fields& fields);

// `tool_choice` as a word: "none", "auto" or "required".
ToolChoice read_choice_mode(Fields& fields);

// Restricts the request's tools to these names. Errors: ApiError for a name that no tool has; `param` is its field.
void allow_tools(ChatRequest& request, const std::vector<std::string>& names, const std::string& param);

}  // namespace ingot::server
