// The energy that processors take, as the kernel tells it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ingot {

// The packages of this machine, everything that runs on them included: RAPL through the kernel's powercap interface
// (Documentation/power/powercap). Most systems let only root read it.
class PackageEnergy {
 public:
  // `root` stands for "/" in tests.
  explicit PackageEnergy(const std::filesystem::path& root = "/");

  bool known() const { return !packages_.empty(); }
  // Joules since this was made. Must be called more often than counters run over (minutes at full power).
  double joules();

 private:
  struct Package {
    std::filesystem::path counter;
    uint64_t range = 0;  // microjoules at which the counter runs over
    uint64_t last = 0;
  };
  std::vector<Package> packages_;
  double total_ = 0;
};

}  // namespace ingot
