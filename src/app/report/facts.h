// The key facts of a run: what stands in the table and in --json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/report/run_log.h"

namespace ingot::app::report {

// NaN where the run does not tell.
struct Facts {
  double final_loss = 0;  // of the last step whose loss was finite
  double first_loss = 0;
  double perplexity_before = 0, perplexity_after = 0;  // held-out: first and last evaluation
  double eval_loss_before = 0, eval_loss_after = 0;
  double best_perplexity = 0;
  double seconds = 0;       // of all processes from start to end; without their `end` lines the sum of the steps
  double tokens_per_s = 0;  // over the time of the steps
  double padding = 0;       // mean over the steps: the share of what they computed that is no token
  double mfu = 0;           // mean over the time of the steps, a share of 1
  double peak_memory = 0;   // bytes
};

Facts facts_of(const RunLog& run);

// "step 120 of 300, stopped": how far the run came and how it ended.
std::string progress_of(const RunLog& run);

}  // namespace ingot::app::report
