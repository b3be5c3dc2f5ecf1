#include "runs/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/cpu_list.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/strings.h"
#include "comm/in_process.h"
#include "comm/launcher.h"
#include "comm/mpi.h"
#include "runs/affinity.h"

namespace ingot::runs {

namespace {

// The stuck rank's threads cannot be ended from outside. No file is half-written: files are published by rename.
void end_process(const Error& error) {
  Log(LogLevel::info).error("{}; another rank does not stop and is abandoned", error.message());
  _exit(exit_code(error.kind()));
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

bool of_one_machine(const std::string& device) { return device == "cpu" || device == "sim32" || device == "sim64"; }

std::string device_of(const std::string& device, const RankPlace& rank) {
  const std::vector<std::string> names = names_in(device);
  if (names.size() == 1 && of_one_machine(device)) return device;
  if (names.size() == 1 && (device == "cuda" || device == "hip")) return fmt::format("{}:{}", device, rank.local);
  if (std::ssize(names) != rank.ranks) {
    throw_hint(ErrorKind::usage, "give one device per rank (device: \"cuda:0,cuda:1\"), or a kind: cpu, cuda, hip",
               "device '{}' lists {} devices for {} ranks", device, names.size(), rank.ranks);
  }
  return names[static_cast<size_t>(rank.rank)];
}

// The same for "auto" too: the first GPU that works says which kind the ranks have, and is closed again.
std::string device_at(const std::string& device, const RankPlace& rank) {
  if (rank.ranks == 1) return device;
  if (device != "auto") return device_of(device, rank);
  const DeviceKind kind = runtime::open_runtime(device, 1).device->kind();
  return kind == DeviceKind::cpu ? "cpu" : fmt::format("{}:{}", name(kind), rank.local);
}

void require_threads(std::optional<int64_t> threads, const RankPlace& rank) {
  if (!threads || *threads >= rank.ranks) return;
  throw_hint(ErrorKind::usage, "set threads to at least the number of ranks",
             "threads: {} is less than the number of ranks, {}", *threads, rank.ranks);
}

// Number of ranks that may use the same CPUs as this one.
int64_t cpu_sharers(const comm::Group& world) {
  const std::string own = host_name() + " " + format_cpu_list(usable_cpus());
  return std::ranges::count(world.gather(own), own);
}

// Threads of one of several ranks when the recipe does not state them.
int64_t automatic_share(const std::vector<int>& cpus, const RankPlace& rank) {
  const int64_t share = cpus.empty() ? available_cpus() / rank.cpu_sharers : std::ssize(cpus) / rank.locals;
  return std::max<int64_t>(1, share);
}

// Sets parallel.dp to what the launcher has started.
void set_launched(train::ParallelRecipe& parallel, const comm::Launch& launch) {
  const int64_t each = parallel.cp * parallel.pp * parallel.tp, dp = launch.size / each;
  const std::string started = fmt::format("{} has started {} processes", launch.launcher, launch.size);
  const std::string others =
      fmt::format("parallel.cp is {}, parallel.pp is {} and parallel.tp is {}", parallel.cp, parallel.pp, parallel.tp);
  if (launch.size % each != 0) {
    throw_hint(ErrorKind::usage, "start a multiple of parallel.cp x parallel.pp x parallel.tp processes", "{}, and {}",
               others, started);
  }
  if (parallel.dp != 1 && parallel.dp != dp) {
    throw_hint(ErrorKind::usage,
               "remove parallel.dp: it is the number of processes over parallel.cp x parallel.pp x parallel.tp",
               "parallel.dp is {}, {}, but {}", parallel.dp, others, started);
  }
  parallel.dp = dp;
}

}  // namespace

int run_ranks(train::ParallelRecipe& parallel, FunctionRef<int(const Rank&)> run) {
  int code = 0;
  const auto grid_of = [&](const comm::Group& world) { return comm::make_grid(world, parallel.layout()); };
  if (const std::optional<comm::Launch> launch = comm::find_launch(environment)) {
    set_launched(parallel, *launch);
    comm::run_mpi(
        {comm::find_mpi_plugin(), launch->size, static_cast<double>(parallel.timeout_s)},
        [&](const comm::MpiRank& rank) { code = run({rank.world, grid_of(rank.world), rank.local, rank.locals}); });
    return code;
  }
  const comm::InProcess settings{.ranks = static_cast<int>(parallel.ranks()),
                                 .timeout_s = static_cast<double>(parallel.timeout_s),
                                 .stuck = end_process};
  comm::run_in_process(settings, [&](const comm::Group& world) {
    const int own = run({world, grid_of(world), world.rank(), world.size(), world.rank() == 0});
    if (world.rank() == 0) code = own;
  });
  return code;
}

train::ShardSpec share_of(const train::ParallelRecipe& parallel, int64_t rank) {
  train::ParallelRecipe p = parallel;
  p.resolve();
  const spec::Layout layout = p.layout();
  const spec::Place place = spec::place_of(layout, rank);
  const int64_t ranks = layout.shard, dp_rank = place.replica(layout);
  train::ShardSpec share{static_cast<int>(dp_rank % ranks), static_cast<int>(ranks), static_cast<int>(p.zero)};
  share.replica = static_cast<int>(dp_rank / ranks);
  share.replicas = static_cast<int>(p.replicas() / ranks);
  share.cp = static_cast<int>(p.cp);
  share.cp_comm_type = p.cp_comm_type;
  share.offload_weights = p.offload == train::Offload::weights;
  share.sum_slices = p.units;
  share.bucket_bytes = p.bucket_mib << 20;
  if (p.pp > 1) {
    share.shards = spec::pipeline_shards(p.schedule, static_cast<int>(p.pp), static_cast<int>(*p.chunks.value),
                                         static_cast<int>(place.pp));
  }
  for (spec::ModelShard& shard : share.shards) {
    shard.tp = p.tp;
    shard.tp_rank = place.tp;
    shard.ep = p.ep;
    shard.ep_rank = place.ep_rank(layout);
    shard.sequence_parallel = p.sequence_parallel;
  }
  return share;
}

runtime::Runtime open_rank_runtime(const std::string& device, std::optional<int64_t> threads,
                                   const std::string& affinity, const Rank& rank) {
  const comm::Group& world = rank.world;
  const std::vector<int> cpus = train::cpus_of(affinity);
  RankPlace place{world.rank(), world.size(), rank.local, rank.locals};
  if (affinity == "auto") {
    require_threads(threads, place);
    // Ranks may have unequal numbers of cores, and the threads of a run that is resumed are the sum of those it had.
    return runtime::open_runtime(device_at(device, place), threads ? std::optional(*threads / place.ranks) : threads,
                                 [&](const std::string& address) { return own_cores(world, address); });
  }
  const bool shares = world.size() > 1 && !threads && cpus.empty();  // the same on all ranks
  if (shares) place.cpu_sharers = cpu_sharers(world);
  return open_runtime_at(device, threads, cpus, place);
}

runtime::Runtime open_runtime_at(const std::string& device, std::optional<int64_t> threads,
                                 const std::vector<int>& cpus, const RankPlace& rank) {
  if (rank.ranks == 1) return runtime::open_runtime(device, threads, cpus);
  require_threads(threads, rank);
  const int64_t own = threads ? *threads / rank.ranks : automatic_share(cpus, rank);
  require_cpus(cpus, own * rank.locals);
  return runtime::open_runtime(device_at(device, rank), own, share_of_cpus(cpus, own, rank.local));
}

runtime::CollectivesChoice choose_collectives(const train::ParallelRecipe& parallel, const Device& device,
                                              const comm::Grid& grid) {
  runtime::CollectivesChoice choice{nullptr, "through host memory"};
  if (parallel.ranks() == 1 || parallel.collectives == train::Collectives::host) return choice;
  // A library for simulated devices is a stand-in, which must be asked for.
  const bool simulated = parallel.collectives == train::Collectives::device;
  const runtime::CollectivesChoice found = runtime::choose_collectives(device, grid.world, simulated);
  if (found.library != nullptr) return {found.library, "by " + found.text};
  if (parallel.collectives == train::Collectives::device) {
    throw_hint(ErrorKind::usage, "install NCCL or RCCL, or set parallel.collectives to auto or host",
               "parallel.collectives: device: {}", found.text);
  }
  choice.text += fmt::format(" ({})", found.text);
  return choice;
}

void on_rank0(const comm::Group& world, FunctionRef<void()> work) {
  std::function<void(const std::atomic<bool>&)> alone;
  if (world.rank() == 0) alone = [&](const std::atomic<bool>&) { work(); };
  comm::run_while_synchronising(world, alone);
}

}  // namespace ingot::runs
