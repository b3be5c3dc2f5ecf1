// The report page: one self-contained HTML file.
#pragma once

#include <span>
#include <string>

#include "report/run_log.h"

namespace ingot::report {

// Returns complete HTML. All text from a run is escaped.
std::string page(std::span<const RunLog> runs);

}  // namespace ingot::report
