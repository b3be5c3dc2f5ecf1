#include "runs/affinity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/cpu_list.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/thread_pool.h"

namespace ingot::runs {

namespace {

// One CPU of each core: of all cores, or of those of a NUMA node.
std::vector<int> cores_of(std::span<const CpuPlace> usable, int node) {
  std::vector<int> cpus;
  std::set<int> cores;
  for (const CpuPlace& place : usable) {
    if (node >= 0 && place.node != node) continue;
    if (cores.insert(place.core).second) cpus.push_back(place.cpu);
  }
  return cpus;
}

// Part `index` of `parts`.
std::vector<int> part_of(const std::vector<int>& cores, int64_t index, int64_t parts) {
  const auto each = std::ssize(cores) / parts, longer = std::ssize(cores) % parts;
  const auto begin = index * each + std::min(index, longer);
  return {cores.begin() + begin, cores.begin() + begin + each + (index < longer ? 1 : 0)};
}

}  // namespace

std::vector<std::vector<int>> divide_cores(std::span<const CpuPlace> usable, std::span<const int> nodes) {
  const bool near = std::ranges::all_of(nodes, [&](int node) { return node >= 0 && !cores_of(usable, node).empty(); });
  std::vector<std::vector<int>> parts;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto shares = [&](int node) { return !near || node == nodes[i]; };
    const std::vector<int> cores = cores_of(usable, near ? nodes[i] : -1);
    const int64_t ranks = std::ranges::count_if(nodes, shares);
    if (std::ssize(cores) < ranks) {
      throw_hint(ErrorKind::usage, "start fewer ranks, list logical CPUs, or use affinity: none",
                 "affinity: auto: {} ranks cannot be bound to {} cores{}", ranks, cores.size(),
                 near ? fmt::format(" of NUMA node {}", nodes[i]) : "");
    }
    parts.push_back(part_of(cores, std::ranges::count_if(nodes.first(i), shares), ranks));
  }
  return parts;
}

std::vector<int> own_cores(const comm::Group& world, const std::string& pci_address) {
  const std::vector<int> usable = usable_cpus();
  const std::vector<std::string> sharers = world.gather(host_name() + " " + format_cpu_list(usable));
  const std::vector<std::string> nodes = world.gather(std::to_string(pci_node(pci_address)));
  std::vector<int> of_sharers;
  size_t own = 0;
  for (size_t i = 0; i < sharers.size(); ++i) {
    if (std::cmp_equal(i, world.rank())) own = of_sharers.size();
    if (sharers[i] == sharers[static_cast<size_t>(world.rank())]) of_sharers.push_back(std::stoi(nodes[i]));
  }
  std::vector<int> cores = divide_cores(cpu_places(usable), of_sharers)[own];
  const auto quota = std::max<int64_t>(1, available_cpus() / std::ssize(of_sharers));  // of a container
  if (std::ssize(cores) > quota) cores.resize(static_cast<size_t>(quota));
  return cores;
}

int64_t num_cores() { return std::min<int64_t>(std::ssize(cores_of(cpu_places(usable_cpus()), -1)), available_cpus()); }

std::string describe_place(std::span<const int> cpus, const std::string& pci_address) {
  int node = pci_node(pci_address);
  std::string text;
  if (!cpus.empty()) {
    std::set<int> nodes;
    for (const CpuPlace& place : cpu_places(cpus)) nodes.insert(place.node);
    text = fmt::format("CPU{} {}", cpus.size() > 1 ? "s" : "", format_cpu_list(cpus));
    if (*nodes.begin() >= 0)
      text += fmt::format(" of NUMA node{} {}", nodes.size() > 1 ? "s" : "", fmt::join(nodes, ", "));
    if (node < 0 && nodes.size() == 1) node = *nodes.begin();
  }
  const std::vector<std::string> adapters = nearest_adapters(pci_address, node);
  if (adapters.empty()) return text;
  return fmt::format("{}{}near {}", text, text.empty() ? "" : ", ", fmt::join(adapters, ", "));
}

}  // namespace ingot::runs
