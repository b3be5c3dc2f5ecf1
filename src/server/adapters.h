// Adapters by their names.
#pragma once

#include <memory>
#include <string>

#include "server/routes.h"

namespace ingot::server {

// Whether `model` is the server's own or an adapter's name. Errors: ApiError model_not_found.
void check_model(const ApiContext& api, const std::string& model);

// The adapter, or null for the model itself. Errors: ApiError model_not_found, and what tells of an adapter that cannot
// be had without naming files; the cause goes into the record.
std::shared_ptr<const infer::HostAdapter> adapter_of(ApiContext& api, const std::string& model, RequestRecord& record);

}  // namespace ingot::server
