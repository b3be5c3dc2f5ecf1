#include "runs/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/cpu_list.h"
#include "base/machine.h"
#include "base/strings.h"
#include "comm/host_communicator.h"
#include "runs/affinity.h"
#include "runs/ranks.h"
#include "runtime/collectives.h"
#include "runtime/device_rates.h"

namespace ingot::runs {

namespace {

constexpr size_t axis_bytes = size_t{16} << 20, link_bytes = size_t{4} << 20;
constexpr int repeats = 3, small_repeats = 20, pings = 4;
// Shares of the median, and of what a machine file says, below which something is wrong.
constexpr double slow_rank = 0.8, slow_link = 0.5;

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Seconds of an all-reduce of `count` numbers, in the middle of several.
double all_reduce_time(comm::DeviceCommunicator& ranks, Device& device, size_t count, int times) {
  const Buffer memory(device, count * sizeof(int64_t));
  comm::DeviceCommunicator::Workspace workspace = ranks.make_workspace(memory.bytes());
  std::vector<double> seconds;
  int64_t first = 0;
  for (int i = 0; i <= times; ++i) {
    const double begin = steady_seconds();
    ranks.all_reduce(workspace, memory.data(), count, comm::Number::i64, comm::ReduceOp::sum)->wait();
    device.copy_to_host(&first, memory.data(), sizeof first);  // waits for the device
    if (i > 0) seconds.push_back(steady_seconds() - begin);
  }
  return median(seconds);
}

// Bytes a second between this rank and `peer`, each way in turn.
double ping(const comm::Group& world, int peer, bool begins) {
  std::vector<std::byte> sent(link_bytes), received(link_bytes);
  double begin = 0;
  for (int i = 0; i <= pings; ++i) {
    if (i == 1) begin = steady_seconds();
    if (begins) world.begin_send(sent, peer).wait();
    world.begin_receive(received, peer).wait();
    if (!begins) world.begin_send(sent, peer).wait();
  }
  return 2.0 * pings * static_cast<double>(link_bytes) / (steady_seconds() - begin);
}

// This rank's link to the next one. Every second pair at a time.
double link_to_next(const comm::Group& world) {
  double own = 0;
  for (int phase = 0; phase < 2; ++phase) {
    const bool begins = world.rank() % 2 == phase;
    const int peer = begins ? world.rank() + 1 : world.rank() - 1;
    if (peer >= 0 && peer < world.size()) {
      const double rate = ping(world, peer, begins);
      if (begins) own = rate;
    }
    world.barrier();
  }
  return own;
}

PreflightAxis measure_axis(const char* name, const comm::Group& group, const comm::Group& world,
                           const std::shared_ptr<comm::DeviceCommunicator>& library, Device& device,
                           const std::vector<std::string>& hosts) {
  PreflightAxis axis{.name = name, .ranks = group.size(), .bytes = axis_bytes};
  const std::shared_ptr<comm::DeviceCommunicator> ranks = library ? library : comm::through_host(device, group);
  axis.by = ranks->name();
  world.barrier();
  // A group has taken as long as its slowest rank.
  const double latency = group.all_max(all_reduce_time(*ranks, device, 1, small_repeats));
  const double seconds = group.all_max(all_reduce_time(*ranks, device, axis_bytes / sizeof(int64_t), repeats));
  const std::vector<std::string> in_group = group.gather(hosts[static_cast<size_t>(world.rank())]);
  const bool across = std::ranges::any_of(in_group, [&](const std::string& host) { return host != in_group[0]; });
  axis.across_nodes = world.all_max<int32_t>(across ? 1 : 0) != 0;
  const double share = 2.0 * (group.size() - 1) / group.size() * static_cast<double>(axis_bytes);
  axis.latency_s = world.all_max(latency);
  std::vector<double> rates = world.gather_one(share / seconds);
  axis.slowest = static_cast<int>(std::ranges::min_element(rates) - rates.begin());
  axis.bus_bytes_per_s = rates[static_cast<size_t>(axis.slowest)];
  axis.median_bytes_per_s = median(rates);
  return axis;
}

Preflight measure(const train::Recipe& recipe, const Rank& rank) {
  const comm::Group& world = rank.world;
  runtime::Runtime runtime = open_rank_runtime(recipe.device, recipe.threads.value, recipe.affinity, rank);
  Device& device = *runtime.device;
  const runtime::CollectivesChoice choice = choose_collectives(recipe.parallel, device, rank.grid);
  const runtime::DeviceCollectives collectives(choice, device, rank.grid, {},
                                               static_cast<double>(recipe.parallel.timeout_s));
  const comm::Grid& grid = collectives.grid();
  Preflight result;
  const std::vector<std::string> hosts = world.gather(host_name());
  const std::vector<std::string> devices = world.gather(device.name());
  const std::vector<std::string> cpus = world.gather(format_cpu_list(usable_cpus()));
  const std::vector<std::string> places = world.gather(describe_place(runtime.cpus, runtime.pci_address));
  world.barrier();
  const std::vector<double> flops = world.gather_one(runtime::measured_gemm(runtime));
  for (size_t i = 0; i < hosts.size(); ++i)
    result.ranks.push_back({hosts[i], devices[i], cpus[i], flops[i], places[i]});
  const bool divided = grid.replicas.size() > 1;
  if (grid.shard.size() > 1) {
    result.axes.push_back(
        measure_axis(divided ? "shard" : "dp", grid.shard, world, grid.on_device.shard, device, hosts));
  }
  if (divided)
    result.axes.push_back(measure_axis("replicas", grid.replicas, world, grid.on_device.replicas, device, hosts));
  if (grid.cp.size() > 1) result.axes.push_back(measure_axis("cp", grid.cp, world, grid.on_device.cp, device, hosts));
  if (grid.ep.size() > 1) result.axes.push_back(measure_axis("ep", grid.ep, world, grid.on_device.ep, device, hosts));
  if (grid.pp.size() > 1) result.axes.push_back(measure_axis("pp", grid.pp, world, nullptr, device, hosts));
  if (grid.tp.size() > 1) result.axes.push_back(measure_axis("tp", grid.tp, world, grid.on_device.tp, device, hosts));
  const std::vector<double> links = world.gather_one(link_to_next(world));
  for (size_t i = 0; i + 1 < links.size(); ++i)
    result.links.push_back({static_cast<int>(i), hosts[i] != hosts[i + 1], links[i]});
  return result;
}

std::string rate(double bytes_per_s) { return fmt::format("{:.3g} GB/s", bytes_per_s / 1e9); }
std::string duration(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.3g} us", seconds * 1e6) : fmt::format("{:.3g} ms", seconds * 1e3);
}

std::string name_of(const Preflight& result, int rank) {
  return fmt::format("rank {} on {}", rank, result.ranks[static_cast<size_t>(rank)].host);
}

// Ranks by node, in the order of their first ranks: "node7: ranks 0 to 3".
std::string places(const Preflight& result) {
  std::vector<std::pair<std::string, std::vector<size_t>>> nodes;
  for (size_t i = 0; i < result.ranks.size(); ++i) {
    const auto node =
        std::ranges::find(nodes, result.ranks[i].host, &std::pair<std::string, std::vector<size_t>>::first);
    if (node == nodes.end()) {
      nodes.push_back({result.ranks[i].host, {i}});
    } else {
      node->second.push_back(i);
    }
  }
  constexpr size_t most = 8;
  std::string text;
  for (size_t n = 0; n < std::min(nodes.size(), most); ++n) {
    const auto& [host, ranks] = nodes[n];
    const PreflightRank& first = result.ranks[ranks.front()];
    const std::string numbers = ranks.size() == 1
                                    ? fmt::format("rank {}", ranks.front())
                                    : fmt::format("{} ranks, {} to {}", ranks.size(), ranks.front(), ranks.back());
    text += fmt::format("{}{}: {} from {} on, CPUs {}", n > 0 ? "; " : "", host, numbers, first.device, first.cpus);
  }
  return nodes.size() > most ? fmt::format("{}; and {} nodes more", text, nodes.size() - most) : text;
}

// The places of the first node's ranks, where they are known.
std::optional<PreflightFinding> binding_finding(const Preflight& result) {
  constexpr size_t most = 8;
  const std::string& host = result.ranks.front().host;
  std::string text;
  size_t ranks = 0;
  for (size_t i = 0; i < result.ranks.size(); ++i) {
    const PreflightRank& rank = result.ranks[i];
    if (rank.host != host || rank.place.empty() || ++ranks > most) continue;
    text += fmt::format("{}rank {} on {}: {}", text.empty() ? "" : "; ", i, rank.device, rank.place);
  }
  if (text.empty()) return std::nullopt;
  if (ranks > most) text += fmt::format("; and {} ranks more", ranks - most);
  return PreflightFinding{"binding", fmt::format("{}: {}", host, text), ""};
}

PreflightFinding compute_finding(const Preflight& result) {
  std::vector<double> flops;
  for (const PreflightRank& rank : result.ranks) flops.push_back(rank.flops);
  const double middle = median(flops);
  const auto slowest = static_cast<int>(std::ranges::min_element(flops) - flops.begin());
  const double least = flops[static_cast<size_t>(slowest)];
  PreflightFinding finding{"compute",
                           fmt::format("{:.3g} TFLOP/s a rank in bf16 matrix products; the slowest is {}, {:.3g}",
                                       middle / 1e12, name_of(result, slowest), least / 1e12),
                           ""};
  if (least < slow_rank * middle)
    finding.advice =
        "all ranks wait for it: look for other programs there, for shared cores, and for a hot or slow device";
  return finding;
}

PreflightFinding axis_finding(const Preflight& result, const PreflightAxis& axis,
                              const std::optional<MachineFile>& machine) {
  PreflightFinding finding{axis.name,
                           fmt::format("groups of {} ranks{}, by {}: all-reduce of {} at {}, of 8 bytes in {}",
                                       axis.ranks, axis.across_nodes ? " across nodes" : "", axis.by,
                                       format_bytes(axis.bytes), rate(axis.bus_bytes_per_s), duration(axis.latency_s)),
                           ""};
  if (axis.bus_bytes_per_s < slow_link * axis.median_bytes_per_s) {
    finding.advice = fmt::format("the group of {} is slower than the median of {}: look at its links",
                                 name_of(result, axis.slowest), rate(axis.median_bytes_per_s));
  }
  const double stated = machine ? machine->link(axis.across_nodes) : 0;
  if (stated > 0)
    finding.message += fmt::format(", {:.0f} % of {}'s link", 100 * axis.bus_bytes_per_s / stated, machine->name);
  if (finding.advice.empty() && stated > 0 && axis.bus_bytes_per_s < slow_link * stated) {
    finding.advice = fmt::format(
        "{} has {} a device{}: {}", machine->name, rate(stated), axis.across_nodes ? " across nodes" : "",
        axis.by == "host memory" ? "ranks reach it only by NCCL or RCCL"
                                 : "check that the fabric is used (NCCL_DEBUG=INFO says how ranks are connected)");
  }
  return finding;
}

std::optional<PreflightFinding> link_finding(const Preflight& result, bool across) {
  std::vector<double> rates;
  const PreflightLink* slowest = nullptr;
  for (const PreflightLink& link : result.links) {
    if (link.across_nodes != across) continue;
    rates.push_back(link.bytes_per_s);
    if (slowest == nullptr || link.bytes_per_s < slowest->bytes_per_s) slowest = &link;
  }
  if (slowest == nullptr) return std::nullopt;
  const double middle = median(rates);
  PreflightFinding finding{
      "links",
      fmt::format("{} of neighbours {}, through host memory: {}; the slowest is {} to {}, {}", rates.size(),
                  across ? "across nodes" : "in a node", rate(middle), name_of(result, slowest->from),
                  name_of(result, slowest->from + 1), rate(slowest->bytes_per_s)),
      ""};
  if (slowest->bytes_per_s < slow_link * middle)
    finding.advice = "look at the network adapters and cables of these nodes, and at what else uses them";
  return finding;
}

}  // namespace

void check_ranks(train::Recipe recipe, const std::function<void(const Preflight&)>& report) {
  run_ranks(recipe.parallel, [&](const Rank& rank) {
    const Preflight result = measure(recipe, rank);
    if (rank.world.rank() == 0) report(result);
    rank.world.barrier();  // a process that ends early would end the others
    return 0;
  });
}

std::vector<PreflightFinding> findings_of(const Preflight& result, const std::optional<MachineFile>& machine) {
  std::vector<PreflightFinding> findings{{"ranks", places(result), ""}};
  if (auto binding = binding_finding(result)) findings.push_back(std::move(*binding));
  findings.push_back(compute_finding(result));
  for (const PreflightAxis& axis : result.axes) findings.push_back(axis_finding(result, axis, machine));
  for (const bool across : {false, true}) {
    if (auto finding = link_finding(result, across)) findings.push_back(std::move(*finding));
  }
  return findings;
}

}  // namespace ingot::runs
