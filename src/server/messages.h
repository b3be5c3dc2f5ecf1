// Converts the messages of a conversation from OpenAI's format to that of chat templates.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot::server {

// Converts the input items of the Responses API and its instructions ("" for none) to such messages: function calls
// become tool calls of the assistant, their outputs tool messages. Errors: ApiError that names the item.
nlohmann::ordered_json template_items(const nlohmann::ordered_json& items, const std::string& instructions);

// Contents become strings (text parts are joined by line feeds), `developer` becomes `system`, arguments of tool calls
// become objects. Errors: ApiError that names the message.
nlohmann::ordered_json template_messages(const nlohmann::ordered_json& messages);

}  // namespace ingot::server
