// Prompts as token ids, for the model or adapter that was asked for.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/api_state.h"

namespace ingot::server {

// Most numbers that the whole of an answer holds: log-probabilities, elements of embeddings.
constexpr int64_t most_told = int64_t{1} << 22;

// Whether `model` is served; the adapter, or null for the model itself. Errors: ApiError model_not_found, and that of
// `adapter_error`, whose cause goes into the record.
std::shared_ptr<const infer::HostAdapter> adapter_of(ApiContext& api, const std::string& model, RequestRecord& record);
// An adapter that cannot be had, in words that name no file: where the server keeps them is nobody's business. `param`
// is the field with its name.
ApiError adapter_error(const Error& error, const std::string& name, const char* param);
void check_model(const ApiContext& api, const std::string& model);

// The template's text of a conversation, to be encoded without special tokens. `tools` may be "".
std::string render_chat(const ServedModel& model, std::string_view messages, std::string_view tools);

// Checked against vocabulary and context, which must have `room` for more tokens. `param` is the field they come from.
Ids encode(const ServedModel& model, std::string_view text, bool add_special_tokens, const std::string& param,
           int64_t room = 1);
Ids encode(const ServedModel& model, const Prompt& prompt, const std::string& param, int64_t room = 1);

// A request to the engine but for its prompt; `index` is the output's place, which the seed depends on. Only requests
// of the same key share kept prompts: how fast an answer comes tells nobody what others have asked.
infer::Request engine_request(const ServedModel& model, const GenerationRequest& request, const RequestRecord& record,
                              int64_t seed, int64_t index);

// The request's seed, or one that nobody can guess.
int64_t seed_of(const GenerationRequest& request);

}  // namespace ingot::server
