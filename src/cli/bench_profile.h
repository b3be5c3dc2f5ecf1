// A step's time by op, as `ingot bench` shows it with --profile.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/op_profile.h"
#include "cli/command.h"

namespace ingot::cli {

void print_profile(const bench::StepProfile& profile, const Output& output);
nlohmann::ordered_json profile_json(const bench::StepProfile& profile);

}  // namespace ingot::cli
