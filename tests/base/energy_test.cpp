#include "base/energy.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/base/scratch.h"

namespace ingot {
namespace {

class PackageEnergyTest : public testing::Test {
 protected:
  void zone(const std::string& folder, const std::string& name, const std::string& microjoules) const {
    const std::filesystem::path path = scratch_ / ("sys/class/powercap/" + folder);
    std::filesystem::create_directories(path);
    write_file(path / "name", name + "\n");
    write_file(path / "energy_uj", microjoules + "\n");
    write_file(path / "max_energy_range_uj", "1000000000\n");
  }
  Scratch scratch_;
};

TEST_F(PackageEnergyTest, SumsPackagesWithoutTheirSubzones) {
  zone("intel-rapl:0", "package-0", "5000000");
  zone("intel-rapl:0:0", "core", "1000000");
  zone("intel-rapl:1", "package-1", "999000000");
  PackageEnergy energy(scratch_.folder());
  ASSERT_TRUE(energy.known());
  EXPECT_EQ(energy.joules(), 0);
  zone("intel-rapl:0", "package-0", "7500000");
  zone("intel-rapl:0:0", "core", "3000000");
  zone("intel-rapl:1", "package-1", "500000");  // the counter wrapped: 1 J up to its maximum, and 0.5 J
  EXPECT_EQ(energy.joules(), 2.5 + 1.5);
  EXPECT_EQ(energy.joules(), 4);
}

// Both intel-rapl and intel-rapl-mmio list a package, in either order.
TEST_F(PackageEnergyTest, CountsAPackageOnce) {
  for (const char* package : {"0", "1", "2", "3"}) {
    zone(std::string("intel-rapl-mmio:") + package, std::string("package-") + package, "100");
    zone(std::string("intel-rapl:") + package, std::string("package-") + package, "5000000");
  }
  zone("intel-rapl-mmio:4", "package-4", "100");
  PackageEnergy energy(scratch_.folder());
  for (const char* package : {"0", "1", "2", "3"}) {
    zone(std::string("intel-rapl-mmio:") + package, std::string("package-") + package, "100000100");
    zone(std::string("intel-rapl:") + package, std::string("package-") + package, "6000000");
  }
  zone("intel-rapl-mmio:4", "package-4", "2000100");
  EXPECT_EQ(energy.joules(), 4 + 2);
}

TEST_F(PackageEnergyTest, IsUnknownWithoutCounters) {
  EXPECT_FALSE(PackageEnergy(scratch_.folder()).known());
  zone("intel-rapl:0", "package-0", "none");
  EXPECT_FALSE(PackageEnergy(scratch_.folder()).known());
}

}  // namespace
}  // namespace ingot
