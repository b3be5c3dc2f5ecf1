// One SVG picture of runs, for a README: loss and held-out perplexity side by side.
#pragma once

#include <span>
#include <string>

#include "report/run_log.h"

namespace ingot::report {

// Returns a complete SVG file. Without held-out evaluations the loss chart takes the whole width.
std::string picture(std::span<const RunLog> runs);

}  // namespace ingot::report
