// The energy that processors use, as the kernel reports it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ingot {

// The CPU packages of this machine, including what other processes use: RAPL through the kernel's powercap interface
// (Documentation/power/powercap). Most systems let only root read it.
class PackageEnergy {
 public:
  // `root` stands for "/" in tests.
  explicit PackageEnergy(const std::filesystem::path& root = "/");

  bool known() const { return !packages_.empty(); }
  // Joules since construction. Must be called more often than the counters wrap around (minutes at full power).
  double joules();

 private:
  struct Package {
    std::filesystem::path counter;
    uint64_t range = 0;  // microjoules at which the counter wraps around
    uint64_t last = 0;
  };
  std::vector<Package> packages_;
  double total_ = 0;
};

}  // namespace ingot
