#include "base/energy.h"

#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/path.h"

namespace ingot {

namespace fs = std::filesystem;

namespace {

std::optional<uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

// Empty when the kernel has no zones, or does not let this user see them.
std::vector<fs::path> zones_below(const fs::path& folder) {
  try {
    return list_folder(folder);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

PackageEnergy::PackageEnergy(const fs::path& root) {
  std::map<std::string, Package> found;
  for (const fs::path& zone : zones_below(root / "sys/class/powercap")) {
    std::ifstream file(zone / "name");
    std::string name;
    // Cores and memory controllers are separate zones below a package's.
    if (!std::getline(file, name) || !name.starts_with("package-")) continue;
    const std::optional<uint64_t> now = read_number(zone / "energy_uj");
    const std::optional<uint64_t> range = read_number(zone / "max_energy_range_uj");
    // A package may be listed twice: also as intel-rapl-mmio:N, the same counter read another way.
    const bool usual = zone.filename().string().starts_with("intel-rapl:");
    if (now && range && (usual || !found.contains(name))) found[name] = {zone / "energy_uj", *range, *now};
  }
  for (auto& [name, package] : found) packages_.push_back(std::move(package));
}

double PackageEnergy::joules() {
  for (Package& package : packages_) {
    const std::optional<uint64_t> now = read_number(package.counter);
    if (!now) continue;  // the next successful read includes this energy
    const uint64_t used = *now >= package.last ? *now - package.last : *now + package.range - package.last;
    total_ += static_cast<double>(used) / 1e6;
    package.last = *now;
  }
  return total_;
}

}  // namespace ingot
