// Fields that the generating routes share, and pieces of others.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "server/fields.h"
#include "server/requests.h"

namespace ingot::server {

constexpr int64_t max_output_tokens = int64_t{1} << 30;

// A body, which is an object, of whose members `read` leaves none over. Errors: ApiError, invalid_json too.
void read_body(std::string_view body, const std::function<void(Fields&)>& read);

// All that TextRequest has but for the number of outputs and of tokens, log-probabilities and `include_usage`.
void read_text_request(Fields& fields, TextRequest& request);

// Errors: ApiError where the request has another constraint, or ignores the end.
void set_constraint(TextRequest& request, ConstraintField format);

// `chat_template_kwargs`: variables of a chat template besides those that are the server's to give; "" without any.
std::string template_variables_of(Fields& fields);

int32_t token_id_at(const Json& value, const std::string& path);

}  // namespace ingot::server
