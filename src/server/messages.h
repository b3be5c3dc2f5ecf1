// The messages of a conversation, from OpenAI's form to the one that chat templates take.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace ingot::server {

// Contents become strings (text parts are joined by line feeds), `developer` becomes `system`, arguments of tool calls
// become objects. Errors: ApiError that names the place.
nlohmann::ordered_json template_messages(const nlohmann::ordered_json& messages);

}  // namespace ingot::server
