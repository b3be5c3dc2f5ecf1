// The report page: one HTML file that needs nothing else.
#pragma once

#include <span>
#include <string>

#include "app/report/run_log.h"

namespace ingot::app::report {

// Complete HTML. Whatever comes from a run is escaped.
std::string page(std::span<const RunLog> runs);

}  // namespace ingot::app::report
