// The ranks of a training run: processes that mpirun or srun has started, or threads of this one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/runtime.h"
#include "base/function_ref.h"
#include "comm/group.h"
#include "train/recipe.h"
#include "train/sharding.h"

namespace ingot::app {

struct Rank {
  comm::Group world;
  int local = 0;              // number among those on this machine
  int locals = 1;             // how many these are
  bool leads_process = true;  // the first of its process: signals are its own
};

// Calls run(rank) for each of the recipe's ranks that this process has, and returns what it returned on the first of
// them. Started by a launcher, the process is one rank, and parallel.dp becomes the number of processes; otherwise all
// ranks are its threads. When one fails, or does not come within parallel.timeout_s, all end, with its reason; one that
// cannot be ended ends the process. Errors besides: usage for a parallel.dp that is not the launcher's number; those of
// comm::find_mpi_plugin and run_mpi.
int run_ranks(train::ParallelRecipe& parallel, FunctionRef<int(const Rank&)> run);

train::Share share_of(const train::Recipe& recipe, const comm::Group& world);

// This rank's device and share of the threads. `device`: one for each rank, separated by commas; "cpu" or a simulated
// one, which ranks share; or a kind of GPU, or "auto", when a rank takes the GPU of its number on its machine.
// `threads`: of all ranks together; absent, the ranks of a machine share its cores, where the launcher has not given
// them cores of their own. `cpus`: logical CPUs of the rank's machine, to which the threads of its ranks are bound in
// their order, rank after rank; without `threads` its ranks share them. Errors: usage for fewer threads than ranks, for
// fewer CPUs than threads of the machine's ranks, and for devices that are not one for each rank; those of
// open_runtime.
Runtime open_rank_runtime(const std::string& device, std::optional<int64_t> threads, const std::vector<int>& cpus,
                          const Rank& rank);

// What the first rank does alone and takes its time for; all call it, and the others wait for it.
void on_first(const comm::Group& world, FunctionRef<void()> work);

}  // namespace ingot::app
