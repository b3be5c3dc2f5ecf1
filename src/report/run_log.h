// The contents of a run directory: its events and its recipe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "report/series.h"

namespace ingot::report {

struct Sample {
  int64_t step = 0;
  std::string prompt;
  std::string text;
};

struct RunLog {
  std::filesystem::path folder;
  std::string name;  // from the recipe, else the folder's name
  std::string device, precision;
  int64_t parameters = 0, trainable = 0;
  int64_t num_planned_steps = 0;
  int64_t last_step = 0;
  int64_t num_tokens = 0;   // trained on so far
  int64_t num_skipped = 0;  // steps whose gradient was non-finite
  // Over steps. Memory in bytes, mfu as a fraction of 1.
  Series loss, lr, grad_norm, tokens_per_s, memory, mfu, step_s;
  Series padding;                     // fraction of the step's computed positions
  Series data_share;                  // fraction of step_s spent waiting for the next batch
  Series eval_loss, eval_perplexity;  // held-out
  std::vector<Sample> samples;
  std::vector<std::string> warnings;
  int64_t num_starts = 0, num_ends = 0;
  double process_seconds = 0;    // over all `end` lines
  double peak_memory = 0;        // bytes, over all lines
  std::string end_reason;        // of the last process: done, stopped or failed; empty when it was killed
  int64_t num_unread_lines = 0;  // truncated or not JSON
  std::string recipe;            // recipe.yaml; empty without one
};

// Reads FOLDER/events.jsonl and, if it exists, FOLDER/recipe.yaml. A null or missing number is NaN; a line that is not
// JSON (the last one of a killed run) is counted and skipped. Errors: not_found naming the folder or the file; corrupt
// for a file without any readable event; unsupported for the events of a newer version.
RunLog read_run(const std::filesystem::path& folder);

}  // namespace ingot::report
