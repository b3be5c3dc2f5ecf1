// Repeats steps of a run and compares the results with those recorded: a check for silent data corruption, on this or
// another machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"

namespace ingot::runs {

// Two values of one quantity. They agree if their bits are equal, or their relative difference is at most `allowed`.
struct Compared {
  double recorded = 0, now = 0, allowed = 0;

  double difference() const;  // relative to `recorded`
  bool agrees() const;
  std::string text(const char* name) const;  // of a quantity of this name
};

struct ReplayedStep {
  int64_t step = 0;
  bool bitwise = false;  // whether bitwise equality is guaranteed here
  Compared loss, grad_norm;

  bool agrees() const { return loss.agrees() && grad_norm.agrees(); }
};

struct Replay {
  std::vector<ReplayedStep> steps;  // in order; at least one
  int64_t from = 0;                 // the checkpoint from which they were computed; 0: the start of the run
  // Tensors of the last step's checkpoint that are not equal to the recomputed ones; absent when there is no such
  // checkpoint, or when equality is not guaranteed here.
  std::optional<std::vector<std::string>> tensors_that_differ;
  std::string device, arch;  // on which they were computed
};

// Recomputes the steps from the last checkpoint before `step` (default: the run's last step) to it. `overrides`:
// settings that differ on this machine. Errors: not_found for a folder without recipe or recorded steps; usage for a
// step that was not recorded; those of reading models, data and checkpoints.
Replay replay(const std::filesystem::path& folder, const std::vector<std::string>& overrides,
              std::optional<int64_t> step, Log& log);

}  // namespace ingot::runs
