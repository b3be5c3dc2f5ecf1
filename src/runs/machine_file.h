// Descriptions of machines, for planning runs on machines other than this one: recipes/machines/NAME.yaml.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"

namespace ingot::runs {

enum class MachineDevice { cuda, hip };

// A node with GPUs. Memory is what programs can use, in GiB.
struct MachineFile {
  std::string name;
  MachineDevice device = MachineDevice::cuda;
  double memory_gib = 0;       // of one GPU; of a package with several dies, of one die
  int64_t devices = 8;         // GPUs of a node, one rank each
  double host_memory_gib = 0;  // of a node
  // Each way, 10^9 bytes a second; 0: not known.
  double link_gb_s = 0;     // of a GPU, to others of its node
  double network_gb_s = 0;  // of a node, to other nodes

  size_t memory() const { return static_cast<size_t>(memory_gib * 1073741824.0); }
  // The host memory of one rank.
  size_t host_memory() const {
    return static_cast<size_t>(host_memory_gib * 1073741824.0 / static_cast<double>(devices));
  }
  // Bytes a second of one GPU: within its node, or its share of the node's network; 0: not known.
  double link(bool across_nodes) const {
    return 1e9 * (across_nodes ? network_gb_s / static_cast<double>(devices) : link_gb_s);
  }
  // The simulated device that takes as much memory as a GPU of this kind.
  const char* stand_in() const { return device == MachineDevice::cuda ? "sim32" : "sim64"; }
};

template <class Visitor>
void describe(Visitor& v, MachineFile& m);

// `name`: a file, or NAME of recipes/machines/NAME.yaml in the current folder. Errors: not_found; usage for what the
// file says wrongly.
MachineFile read_machine_file(const std::string& name);

}  // namespace ingot::runs

template <>
struct ingot::EnumNames<ingot::runs::MachineDevice> {
  static constexpr std::pair<runs::MachineDevice, const char*> names[] = {{runs::MachineDevice::cuda, "cuda"},
                                                                          {runs::MachineDevice::hip, "hip"}};
};

template <class Visitor>
void ingot::runs::describe(Visitor& v, MachineFile& m) {
  v.field("name", m.name, "name of the machine", {.required = true});
  v.field("device", m.device, "kind of its GPUs", {.required = true});
  v.field("memory_gib", m.memory_gib, "memory of a GPU that programs can use, GiB", {.above = 0, .required = true});
  v.field("devices", m.devices, "GPUs of a node", {.min = 1, .required = true});
  v.field("host_memory_gib", m.host_memory_gib, "host memory of a node, GiB", {.above = 0, .required = true});
  v.field("link_gb_s", m.link_gb_s, "GB/s of a GPU to others of its node, each way; 0: not known", {.min = 0});
  v.field("network_gb_s", m.network_gb_s, "GB/s of a node to other nodes, each way; 0: not known", {.min = 0});
}
