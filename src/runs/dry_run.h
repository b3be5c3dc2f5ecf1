// What a run would take, without starting it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "train/recipe.h"

namespace ingot::runs {

// Prints the resolved recipe and the memory of each rank, or of rank number `rank` alone. Starts no ranks, so the
// layout may be that of a cluster: every rank is planned with this machine's device and an equal share of its threads
// and, on CPUs, of its memory. Without training data it plans for full sequences and prints the plan whether or not it
// fits. Errors: those of a run before its first step; usage for a rank that the layout does not have, and under a
// launcher.
void dry_run(const train::Recipe& recipe, std::optional<int64_t> rank,
             const std::function<void(std::string_view)>& print);

}  // namespace ingot::runs
