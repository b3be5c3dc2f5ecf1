// What a run would take, without starting it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "train/recipe.h"

namespace ingot::runs {

// Prints the resolved recipe and the memory of each rank, or of rank number `rank` alone. Starts no ranks, so the
// layout may be that of a cluster: every rank is planned with this machine's device and an equal share of its threads
// and, on CPUs, of its memory; or, with `machine` (read_machine_file), with that machine's GPUs, whatever the recipe's
// device is. Without training data it plans for full sequences and prints the plan whether or not it fits; without the
// files of pretrained weights it plans for the model's shape. Errors: those of a run before its first step; usage for a
// rank that the layout does not have, and under a launcher.
void dry_run(const train::Recipe& recipe, std::optional<int64_t> rank, const std::optional<std::string>& machine,
             const std::function<void(std::string_view)>& print);

}  // namespace ingot::runs
