// Reads fields that the generating routes share, and parts of other fields.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "server/fields.h"
#include "server/requests.h"

namespace ingot::server {

constexpr int64_t max_output_tokens = int64_t{1} << 30;

// Parses a body, which must be an object, and passes it to `read`. Errors: ApiError; also invalid_json, and for members
// that `read` does not read.
void read_body(std::string_view body, const std::function<void(Fields&)>& read);

// Reads all of TextRequest except for the number of outputs and of tokens, log-probabilities and `include_usage`.
void read_text_request(Fields& fields, TextRequest& request);

// Sets the request's constraint. Errors: ApiError if it already has one, or ignores the EOS token.
void set_constraint(TextRequest& request, ConstraintField format);

// `chat_template_kwargs`: variables for the chat template, without those that the server sets; "" for none.
std::string template_variables_of(Fields& fields);

int32_t token_id_at(const Json& value, const std::string& path);

}  // namespace ingot::server
