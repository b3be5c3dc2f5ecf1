// The report at the end of a run, as text.
#pragma once

#include <filesystem>
#include <string>

#include "app/run_console.h"
#include "app/run_data.h"
#include "app/run_plan.h"

namespace ingot::app {

// Lines with losses, speed, memory, the result (its adapter or model) and a command to try it.
std::string end_report(const RunPlan& plan, const RunData& data, const Console::Memory& seen,
                       const std::filesystem::path& result);

}  // namespace ingot::app
