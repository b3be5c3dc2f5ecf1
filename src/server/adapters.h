// Adapters by name.
#pragma once

#include <memory>
#include <string>

#include "server/routes.h"

namespace ingot::server {

// Checks that `model` is the served model or an adapter. Errors: ApiError model_not_found.
void check_model(const ApiContext& api, const std::string& model);

// The adapter named `model`, or null for the base model. Errors: ApiError model_not_found; an ApiError that names no
// files for an adapter that cannot be used, with the cause in `record.failure`.
std::shared_ptr<const infer::HostAdapter> adapter_of(ApiContext& api, const std::string& model, RequestRecord& record);

}  // namespace ingot::server
