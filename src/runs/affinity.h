// `affinity: auto`: the cores to which each rank's threads are bound.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/topology.h"
#include "comm/group.h"

namespace ingot::runs {

// One logical CPU of each core, for each of several ranks. `usable`: the CPUs that all of them may use, as cpu_places
// gives them. nodes[i]: the NUMA node of rank i's GPU; -1: unknown, or it has none. Ranks with a GPU divide the cores
// of its node; if a rank has none, or a GPU's node has no usable core, all ranks divide all cores, those of a node
// after each other. The first ranks have a core more where they do not divide equally. Errors: usage for fewer cores
// than ranks that divide them.
std::vector<std::vector<int>> divide_cores(std::span<const CpuPlace> usable, std::span<const int> nodes);

// This rank's part of the CPUs of its process, which it shares with the ranks of its machine that may use the same ones
// (a launcher may have assigned CPUs to each), at most its share of available_cpus(). `pci_address`: of its GPU; empty:
// none. Collective over the world. Errors: as divide_cores.
std::vector<int> own_cores(const comm::Group& world, const std::string& pci_address);

// Cores of the CPUs that this process may use, at most available_cpus().
int64_t num_cores();

// Where a rank's threads are bound, and the network adapters nearest to its device, "CPUs 0-7 of NUMA node 0, near
// mlx5_0". `cpus`: may be empty.
std::string describe_place(std::span<const int> cpus, const std::string& pci_address);

}  // namespace ingot::runs
