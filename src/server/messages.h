// The messages of a conversation, from OpenAI's form to the one that chat templates take.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot::server {

// The input items of the Responses API and its instructions ("" for none) as such messages: calls of functions become
// an assistant's, their outputs a tool's. Errors: ApiError that names the place.
nlohmann::ordered_json template_items(const nlohmann::ordered_json& items, const std::string& instructions);

// Contents become strings (text parts are joined by line feeds), `developer` becomes `system`, arguments of tool calls
// become objects. Errors: ApiError that names the place.
nlohmann::ordered_json template_messages(const nlohmann::ordered_json& messages);

}  // namespace ingot::server
