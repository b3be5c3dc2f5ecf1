// Where a machine's CPUs, devices and network adapters are, as Linux reports it below /sys. `root` replaces "/" in
// tests.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ingot {

struct CpuPlace {
  int cpu = 0;
  int core = 0;   // the lowest CPU of its physical core
  int node = -1;  // NUMA node; -1 when the system does not report it
};

// The places of `cpus`, by node, then by number.
std::vector<CpuPlace> cpu_places(std::span<const int> cpus, const std::filesystem::path& root = "/");

// The NUMA node of the PCI device at `address`, "0000:3b:00.0"; -1 when the system does not report it.
int pci_node(const std::string& address, const std::filesystem::path& root = "/");

// The RDMA adapters (/sys/class/infiniband: InfiniBand, RoCE, EFA; /sys/class/cxi: Slingshot) with the fewest PCI
// bridges between them and the device at `address`, by name. If `address` is empty or unknown: those of NUMA node
// `node`, or all of the machine's if that is -1 or has none.
std::vector<std::string> nearest_adapters(const std::string& address, int node,
                                          const std::filesystem::path& root = "/");

}  // namespace ingot
