// What a run directory tells: its events and its recipe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/report/series.h"

namespace ingot::app::report {

struct Sample {
  int64_t step = 0;
  std::string prompt;
  std::string text;
};

struct RunLog {
  std::filesystem::path folder;
  std::string name;  // of the recipe; the folder's without one
  std::string device, precision;
  int64_t parameters = 0, trained = 0;
  int64_t num_planned_steps = 0;
  int64_t last_step = 0;
  int64_t num_tokens = 0;   // trained on so far
  int64_t num_skipped = 0;  // steps whose gradient was not finite
  // Over steps. Memory in bytes, mfu a share of 1.
  Series loss, lr, grad_norm, tokens_per_s, memory, mfu, step_s;
  Series padding;                     // share of what the step computed
  Series data_share;                  // of step_s in which the next batch was waited for
  Series eval_loss, eval_perplexity;  // held-out
  std::vector<Sample> samples;
  std::vector<std::string> warnings;
  int64_t num_starts = 0, num_ends = 0;
  double process_seconds = 0;    // over all `end` lines
  double peak_memory = 0;        // bytes, over all lines
  std::string end_reason;        // of the last process: done, stopped or failed; empty when it did not end by itself
  int64_t num_unread_lines = 0;  // torn or not JSON
  std::string recipe;            // recipe.yaml; empty without one
};

// Reads FOLDER/events.jsonl and, where there is one, FOLDER/recipe.yaml. A number that is null or missing is NaN, a
// line that is not JSON (the last one of a killed run) is counted and passed over. Errors: not_found naming the folder
// or the file; corrupt for a file without one readable event.
RunLog read_run(const std::filesystem::path& folder);

}  // namespace ingot::app::report
