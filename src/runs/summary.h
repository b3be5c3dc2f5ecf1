// The report at the end of a run, as text.
#pragma once

#include <filesystem>
#include <string>

#include "runs/console.h"
#include "runs/data.h"
#include "runs/plan.h"

namespace ingot::runs {

// Lines with losses, speed, memory, the result (its adapter or model) and a command to try it.
std::string end_report(const RunPlan& plan, const RunData& data, const Console::Summary& seen,
                       const std::filesystem::path& result);

}  // namespace ingot::runs
