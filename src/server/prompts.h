// Prompts as token ids, for the model or adapter that was asked for.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/api_state.h"

namespace ingot::server {

// Whether `model` is served; the adapter, or null for the model itself. Errors: ApiError model_not_found.
std::shared_ptr<const infer::HostAdapter> adapter_of(ApiContext& api, const std::string& model);
void check_model(const ApiContext& api, const std::string& model);

// The template's text of a conversation, to be encoded without special tokens. `tools` may be "".
std::string render_chat(const ServedModel& model, std::string_view messages, std::string_view tools);

// Checked against vocabulary and context. `param` is the field they come from.
Ids encode(const ServedModel& model, std::string_view text, bool add_special_tokens, const std::string& param);
Ids encode(const ServedModel& model, const Prompt& prompt, const std::string& param);

// A request to the engine but for its prompt; `index` is the output's place, which the seed depends on.
infer::Request engine_request(const ServedModel& model, const GenerationRequest& request, int64_t seed, int64_t index);

// The request's seed, or one that nobody can guess.
int64_t seed_of(const GenerationRequest& request);

}  // namespace ingot::server
