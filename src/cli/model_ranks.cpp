#include "cli/model_ranks.h"

#include "base/environment.h"
#include "base/error.h"
#include "comm/failure.h"
#include "comm/launcher.h"
#include "infer/follower.h"
#include "nn/transfer.h"
#include "runs/ranks.h"

namespace ingot::cli {

namespace {

int on_rank(const runtime::ModelOptions& options, const train::ParallelRecipe& parallel, const runs::Rank& rank,
            FunctionRef<int(const runtime::ModelRank&)> work) {
  runtime::Runtime runtime = runs::open_rank_runtime(options.device, options.threads, "none", rank);
  const runtime::CollectivesChoice choice = runs::choose_collectives(parallel, *runtime.device, rank.grid);
  const runtime::DeviceCollectives collectives(choice, *runtime.device, rank.grid, {},
                                               static_cast<double>(parallel.timeout_s));
  try {
    const std::shared_ptr<comm::DeviceCommunicator>& communicator = collectives.grid().on_device.tp;
    if (!communicator) return work({runtime, {rank.world, {rank.grid.tp}, rank.grid.pp}});
    Arena memory(*runtime.device, nn::DeviceSum::bytes(), "sums over ranks");
    nn::DeviceSum sum(communicator, memory);
    return work({runtime, {rank.world, {rank.grid.tp, &sum}, rank.grid.pp}});
  } catch (...) {
    rank.world.fail(comm::error_of_exception());  // before communicators end, which may wait for the other ranks
    collectives.end();
    throw;
  }
}

}  // namespace

void check_ranks(const runtime::ModelOptions& options) {
  if (options.tp >= 1 && options.pp >= 1) return;
  throw_error(ErrorKind::usage, "--tp {} and --pp {}; both must be at least 1", options.tp, options.pp);
}

int on_model_ranks(const runtime::ModelOptions& options, FunctionRef<int(const runtime::ModelRank&)> work,
                   double timeout_s) {
  check_ranks(options);
  const int64_t ranks = options.tp * options.pp;
  const std::optional<comm::Launch> launch = comm::find_launch(environment);
  if (launch && launch->size != ranks) {
    throw_hint(ErrorKind::usage, "start as many processes as --tp times --pp",
               "--tp is {} and --pp {}, and {} has started {} processes", options.tp, options.pp, launch->launcher,
               launch->size);
  }
  if (ranks == 1) {
    runtime::Runtime runtime = runtime::open_runtime(options.device, options.threads);
    return work({runtime, {}});
  }
  train::ParallelRecipe parallel;
  parallel.tp = options.tp;
  parallel.pp = options.pp;
  parallel.timeout_s = static_cast<int64_t>(timeout_s);
  return runs::run_ranks(parallel, [&](const runs::Rank& rank) { return on_rank(options, parallel, rank, work); });
}

int follow_engine(const runtime::Session& session) {
  const runtime::Runtime& runtime = session.runtime;
  infer::follow_engine(*runtime.device, runtime.registry, *runtime.threads, *session.model, session.ranks,
                       session.loaded.files.get());
  return 0;
}

size_t memory_for_each(const runtime::Session& session) {
  const Device& device = *session.runtime.device;
  const auto available = static_cast<int64_t>(device.memory_available());
  const int64_t least = -session.ranks.all_max(-available);
  return static_cast<size_t>(least / (device.host_visible() ? session.ranks.size() : 1));
}

}  // namespace ingot::cli
