// A training run: a recipe is resolved for this machine, and planned or run to its end.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "runs/folder.h"
#include "train/recipe.h"

namespace ingot::runs {

struct RunRequest {
  train::Recipe recipe;
  Resume resume = Resume::no;
  bool dry_run = false;                // print the resolved recipe and the memory it needs, and stop (runs/dry_run.h)
  std::optional<int64_t> rank;         // of a dry run: the memory of this rank alone
  std::optional<std::string> machine;  // of a dry run: the machine that it is planned for (read_machine_file)
  bool quiet = false;                  // no progress bar
  // Receives the plan of a dry run, and the report at the end. Called by the first rank. Required.
  std::function<void(std::string_view)> print;
  // Called in the handler of the second signal that asks the run to stop (StopSignal); must be async-signal-safe.
  void (*second_signal)(int signal) = nullptr;
};

// Runs all ranks of this process (run_ranks). Returns 0, or 130 when a signal stopped the run, which then can be
// resumed. Errors: those of reading models, data and recipes (usage, not_found, corrupt), of the run's folder
// (RunFolder), of memory (resource), and of what the run writes (unavailable).
int run(RunRequest request);

// The folder of the recipe's run.
std::filesystem::path run_folder(const train::Recipe& recipe);

}  // namespace ingot::runs
