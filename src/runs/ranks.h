// The ranks that train a model, or compute one together: processes started by mpirun or srun, or threads of this
// process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "comm/grid.h"
#include "runtime/collectives.h"
#include "runtime/runtime.h"
#include "train/recipe.h"
#include "train/sharding.h"

namespace ingot::runs {

struct Rank {
  comm::Group world;
  comm::Grid grid;            // the world by the recipe's layout
  int local = 0;              // rank number on this machine
  int locals = 1;             // number of ranks on this machine
  bool leads_process = true;  // the first rank of its process, which handles the signals
};

// Calls run(rank) for each of the recipe's ranks in this process, and returns the result of the first of them. Under a
// launcher the process is one rank, and parallel.dp becomes the number of processes over cp x pp x tp of the recipe;
// otherwise all ranks are threads of this process. When a rank fails, or does not arrive within parallel.timeout_s, all
// ranks end with its error; a rank that cannot be ended ends the process. Other errors: usage for a layout that differs
// from the launcher's number; those of comm::find_mpi_plugin and run_mpi.
int run_ranks(train::ParallelRecipe& parallel, FunctionRef<int(const Rank&)> run);

// What a rank stores, by its number in the world.
train::ShardSpec share_of(const train::ParallelRecipe& parallel, int64_t rank);

// Numbers that decide which device, threads and CPUs a rank has.
struct RankPlace {
  int rank = 0, ranks = 1;
  int local = 0, locals = 1;  // among those of its machine
  int64_t cpu_sharers = 1;    // ranks that may use the same CPUs as this one: launchers may assign CPUs to each
};

// open_rank_runtime for a rank at this place, which need not have been started, with the CPUs that `affinity` lists.
runtime::Runtime open_runtime_at(const std::string& device, std::optional<int64_t> threads,
                                 const std::vector<int>& cpus, const RankPlace& place);

// Opens this rank's device with its share of the threads. `device`: one per rank, separated by commas; "cpu" or a
// simulated device, shared by all ranks; or a kind of GPU or "auto", where each rank uses the GPU with its number on
// its machine. `threads`: total of all ranks; when absent, the ranks of a machine share its cores, unless the launcher
// has assigned cores to each rank. `affinity`, as in a recipe: logical CPUs of the machine to which the threads of its
// ranks are bound in order, rank after rank; without `threads` they are divided among the ranks; or auto (own_cores,
// collective); or none. Errors: usage for fewer threads than ranks, for fewer CPUs than threads of the machine's ranks,
// and for a number of devices other than the number of ranks; those of own_cores and open_runtime.
runtime::Runtime open_rank_runtime(const std::string& device, std::optional<int64_t> threads,
                                   const std::string& affinity, const Rank& rank);

// What the ranks exchange device memory by, as parallel.collectives says. Collective over the grid. Errors: usage when
// that cannot be.
runtime::CollectivesChoice choose_collectives(const train::ParallelRecipe& parallel, const Device& device,
                                              const comm::Grid& grid);

// Runs `work` on rank 0 while the others wait for it, without a time limit. Collective.
void on_rank0(const comm::Group& world, FunctionRef<void()> work);

}  // namespace ingot::runs
