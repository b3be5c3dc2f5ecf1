#include "base/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <tuple>

#include "base/cpu_list.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/path.h"
#include "base/strings.h"

namespace ingot {

namespace {

namespace fs = std::filesystem;

std::optional<std::string> text_of(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  try {
    return std::string(trim(read_file(path)));
  } catch (const Error&) {  // not every attribute of a device can be read
    return std::nullopt;
  }
}

int node_of(const fs::path& device) {
  const std::optional<std::string> text = text_of(device / "numa_node");
  return text ? static_cast<int>(parse_int(*text).value_or(-1)) : -1;
}

// Empty for a folder that is not there, or cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  try {
    return list_folder(folder);
  } catch (const Error&) {
    return {};
  }
}

// The device's folder below /sys/devices, whose names are the bridges above it.
fs::path place_of(const fs::path& link) {
  std::error_code error;
  const fs::path place = fs::canonical(link, error);
  return error ? fs::path() : place;
}

// Names of the two paths that are not common to both.
std::ptrdiff_t distance(const fs::path& a, const fs::path& b) {
  const auto [end_a, end_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return std::distance(end_a, a.end()) + std::distance(end_b, b.end());
}

}  // namespace

std::vector<CpuPlace> cpu_places(std::span<const int> cpus, const fs::path& root) {
  std::vector<CpuPlace> places;
  for (const int cpu : cpus) {
    const fs::path folder = root / fmt::format("sys/devices/system/cpu/cpu{}", cpu);
    const std::optional<std::string> siblings = text_of(folder / "topology/thread_siblings_list");
    places.push_back({cpu, siblings && !siblings->empty() ? std::ranges::min(parse_cpu_list(*siblings)) : cpu, -1});
  }
  for (const fs::path& folder : entries(root / "sys/devices/system/node")) {
    const std::string name = folder.filename().string();
    const std::optional<int64_t> node = name.starts_with("node") ? parse_int(name.substr(4)) : std::nullopt;
    const std::optional<std::string> list = node ? text_of(folder / "cpulist") : std::nullopt;
    if (!list || list->empty()) continue;  // a node may have memory only
    const std::vector<int> own = parse_cpu_list(*list);
    for (CpuPlace& place : places) {
      if (std::ranges::find(own, place.cpu) != own.end()) place.node = static_cast<int>(*node);
    }
  }
  std::ranges::sort(places, {}, [](const CpuPlace& place) { return std::tuple(place.node, place.cpu); });
  return places;
}

int pci_node(const std::string& address, const fs::path& root) {
  return address.empty() ? -1 : node_of(root / "sys/bus/pci/devices" / address);
}

std::vector<std::string> nearest_adapters(const std::string& address, int node, const fs::path& root) {
  struct Adapter {
    std::string name;
    fs::path place;
    int node;
  };
  std::vector<Adapter> adapters;
  for (const char* kind : {"infiniband", "cxi"}) {
    for (const fs::path& entry : entries(root / "sys/class" / kind)) {
      adapters.push_back({entry.filename().string(), place_of(entry / "device"), node_of(entry / "device")});
    }
  }
  const fs::path device = address.empty() ? fs::path() : place_of(root / "sys/bus/pci/devices" / address);
  const auto names_with = [&](auto chosen) {
    std::vector<std::string> names;
    for (const Adapter& adapter : adapters) {
      if (chosen(adapter)) names.push_back(adapter.name);
    }
    return names;
  };
  if (!device.empty() && !adapters.empty()) {
    const auto from_device = [&](const Adapter& adapter) { return distance(adapter.place, device); };
    const auto least = from_device(*std::ranges::min_element(adapters, {}, from_device));
    return names_with([&](const Adapter& adapter) { return from_device(adapter) == least; });
  }
  const std::vector<std::string> of_node =
      names_with([&](const Adapter& adapter) { return node >= 0 && adapter.node == node; });
  return of_node.empty() ? names_with([](const Adapter&) { return true; }) : of_node;
}

}  // namespace ingot
