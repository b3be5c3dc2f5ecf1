#include "base/topology.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/base/scratch.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// Two packages of two cores with two threads each; CPUs 0 to 3 are the cores' first threads.
class TopologyTest : public testing::Test {
 protected:
  TopologyTest() {
    for (int cpu = 0; cpu < 8; ++cpu) {
      const int core = cpu % 4;
      write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
            std::to_string(core) + "," + std::to_string(core + 4));
    }
    write("sys/devices/system/node/node0/cpulist", "0-1,4-5");
    write("sys/devices/system/node/node1/cpulist", "2-3,6-7");
    write("sys/devices/system/node/node2/cpulist", "");  // memory only
    write("sys/devices/system/node/online", "0-2");
  }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((scratch_ / path).parent_path());
    write_file(scratch_ / path, text + "\n");
  }
  void link(const std::string& at, const std::string& to) {
    fs::create_directories((scratch_ / at).parent_path());
    fs::create_directory_symlink(scratch_ / to, scratch_ / at);
  }
  // A PCI device below some bridges.
  void device(const std::string& bridges, const std::string& address, const std::string& node) {
    write("sys/devices/" + bridges + "/" + address + "/numa_node", node);
    link("sys/bus/pci/devices/" + address, "sys/devices/" + bridges + "/" + address);
  }
  void adapter(const std::string& kind, const std::string& name, const std::string& address) {
    link("sys/class/" + kind + "/" + name + "/device", "sys/bus/pci/devices/" + address);
  }
  Scratch scratch_;
};

TEST_F(TopologyTest, PlacesCpusByNodeAndCore) {
  const std::vector<int> cpus = {7, 0, 2, 4};
  std::vector<std::vector<int>> places;
  for (const CpuPlace& place : cpu_places(cpus, scratch_.folder()))
    places.push_back({place.cpu, place.core, place.node});
  EXPECT_EQ(places, (std::vector<std::vector<int>>{{0, 0, 0}, {4, 0, 0}, {2, 2, 1}, {7, 3, 1}}));
}

TEST_F(TopologyTest, TakesEveryCpuForACoreWhereNothingIsReported) {
  const std::vector<int> cpus = {1, 0};
  const std::vector<CpuPlace> places = cpu_places(cpus, scratch_ / "nothing");
  ASSERT_EQ(places.size(), 2);
  EXPECT_EQ(places[0].cpu, 0);
  EXPECT_EQ(places[1].core, 1);
  EXPECT_EQ(places[1].node, -1);
  EXPECT_EQ(pci_node("0000:01:00.0", scratch_ / "nothing"), -1);
  EXPECT_EQ(nearest_adapters("0000:01:00.0", 0, scratch_ / "nothing"), Names{});
}

TEST_F(TopologyTest, FindsTheAdaptersBelowTheSameBridge) {
  device("pci0000:00/0000:00:01.0", "0000:01:00.0", "0");  // a GPU and an adapter below one bridge
  device("pci0000:00/0000:00:01.0", "0000:02:00.0", "0");
  device("pci0000:00/0000:00:03.0", "0000:03:00.0", "0");
  device("pci0000:80/0000:80:01.0", "0000:81:00.0", "1");
  device("pci0000:80/0000:80:01.0", "0000:82:00.0", "1");
  device("pci0000:80/0000:80:02.0", "0000:83:00.0", "1");
  adapter("infiniband", "mlx5_0", "0000:02:00.0");
  adapter("infiniband", "mlx5_1", "0000:03:00.0");
  adapter("cxi", "cxi0", "0000:82:00.0");
  EXPECT_EQ(nearest_adapters("0000:01:00.0", -1, scratch_.folder()), Names{"mlx5_0"});
  EXPECT_EQ(nearest_adapters("0000:81:00.0", -1, scratch_.folder()), Names{"cxi0"});
  EXPECT_EQ(nearest_adapters("0000:83:00.0", -1, scratch_.folder()), Names{"cxi0"});
  EXPECT_EQ(nearest_adapters("", 0, scratch_.folder()), (Names{"mlx5_0", "mlx5_1"}));
  EXPECT_EQ(nearest_adapters("", 2, scratch_.folder()), (Names{"mlx5_0", "mlx5_1", "cxi0"}));
  EXPECT_EQ(pci_node("0000:83:00.0", scratch_.folder()), 1);
  EXPECT_EQ(pci_node("0000:99:00.0", scratch_.folder()), -1);
}

}  // namespace
}  // namespace ingot
