// Key figures of a run, for the report's table and --json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/run_log.h"

namespace ingot::report {

// NaN where the run has no value.
struct KeyFigures {
  double final_loss = 0;  // of the last step with a finite loss
  double first_loss = 0;
  double perplexity_before = 0, perplexity_after = 0;  // held-out: first and last evaluation
  double eval_loss_before = 0, eval_loss_after = 0;
  double best_perplexity = 0;
  double seconds = 0;       // total of all processes from start to end; without `end` lines the sum of the step times
  double tokens_per_s = 0;  // averaged over the time of the steps
  double padding = 0;       // mean over the steps: fraction of computed positions that are padding
  double mfu = 0;           // mean over the time of the steps, a fraction of 1
  double peak_memory = 0;   // bytes
};

KeyFigures key_figures_of(const RunLog& run);

// "step 120 of 300, stopped": the run's progress and how it ended.
std::string progress_of(const RunLog& run);

}  // namespace ingot::report
