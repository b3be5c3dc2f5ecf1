// The ranks of a training run: threads of this process, each with its share of the machine.
#pragma once

#include <optional>
#include <string>

#include "app/runtime.h"
#include "base/function_ref.h"
#include "comm/group.h"
#include "train/recipe.h"

namespace ingot::app {

// Calls run(world) for each of the recipe's ranks, and returns what it returned on rank 0. When one fails, or does not
// come within parallel.timeout_s, all end, with its reason; one that cannot be ended ends the process.
int run_ranks(const train::ParallelRecipe& parallel, FunctionRef<int(const comm::Group&)> run);

// This rank's device and share of the threads. `device`: one for each rank, separated by commas; "cpu" or a simulated
// one, which ranks share; or a kind of GPU, or "auto", when rank r takes the GPU of number r. `threads`: of all ranks
// together. Errors: usage for fewer threads than ranks, and for devices that are not one for each rank; those of
// open_runtime.
Runtime open_rank_runtime(const std::string& device, std::optional<int64_t> threads, const comm::Group& world);

}  // namespace ingot::app
