// The charts of runs: which curves each contains, and how several runs are overlaid.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/chart.h"
#include "report/run_log.h"

namespace ingot::report {

// Unique names of the runs: the run's name, or its folder where two have the same name.
std::vector<std::string> labels_of(std::span<const RunLog> runs);

// Training loss of every step (faint) and smoothed, and held-out loss.
Chart loss_chart(std::span<const RunLog> runs);
Chart perplexity_chart(std::span<const RunLog> runs);

// Learning rate, gradient norm, tokens/s, memory and MFU. Charts without data in any run are omitted.
std::vector<Chart> other_charts(std::span<const RunLog> runs);

}  // namespace ingot::report
