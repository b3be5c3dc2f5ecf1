// Communicators of a pipeline's stages on simulated devices, by the stand-in for NCCL.
#include "runtime/collectives.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <vector>

#include "backend/gpu/sim/sim_device.h"
#include "base/error.h"
#include "comm/failure.h"
#include "comm/in_process.h"
#include "tests/locations.h"

namespace ingot::runtime {
namespace {

class Collectives : public testing::Test {
 protected:
  Collectives() { setenv("INGOT_NCCL_LIBRARY", fake_nccl, 1); }
  ~Collectives() override { unsetenv("INGOT_NCCL_LIBRARY"); }

  // `work` on each rank of the layout.
  template <class Work>
  static void on_ranks(const spec::Layout& layout, const CollectivesUse& use, double timeout_s, Work work) {
    comm::run_in_process({.ranks = static_cast<int>(layout.ranks()), .timeout_s = 60}, [&](const comm::Group& world) {
      const std::unique_ptr<gpu::GpuDevice> device = gpu::sim::make_device(32);
      const comm::Grid grid = comm::make_grid(world, layout);
      const DeviceCollectives collectives(choose_collectives(*device, world, true), *device, grid, use, timeout_s);
      try {
        work(*device, collectives.grid());
      } catch (...) {
        world.fail(comm::error_of_exception());
        collectives.end();
        throw;
      }
    });
  }
};

// A number to each linked stage, and one from it.
void expect_messages(Device& device, const comm::Grid& grid) {
  const int own = grid.pp.rank();
  for (const auto& [peer, link] : grid.on_device.links) {
    EXPECT_EQ(link.send->size(), 2);
    EXPECT_EQ(link.receive->size(), 2);
    EXPECT_EQ(link.send->staging_bytes(1000), 0U);
    const Buffer memory(device, 16);
    auto* at = static_cast<std::byte*>(memory.data());
    int64_t numbers[] = {100 * own + peer, -1};
    device.copy_from_host(at, numbers, 16);
    comm::DeviceCommunicator::Workspace sends = link.send->make_workspace(8),
                                        receives = link.receive->make_workspace(8);
    const auto send = link.send->send(sends, at, 8, link.peer);
    const auto receive = link.receive->receive(receives, at + 8, 8, link.peer);
    send->wait();
    receive->wait();
    device.copy_to_host(numbers, at, 16);
    EXPECT_EQ(numbers[0], 100 * own + peer);
    EXPECT_EQ(numbers[1], 100 * peer + own);
  }
}

TEST_F(Collectives, LinkNeighbouringStages) {
  for (const int stages : {2, 3, 4}) {
    for (const bool is_ring : {false, true}) {
      if (stages == 4 && !is_ring) continue;
      on_ranks({.pp = stages}, {.sends_messages = true, .is_ring = is_ring}, 60,
               [&](Device& device, const comm::Grid& grid) {
                 const int own = grid.pp.rank();
                 std::set<int> expected, linked;
                 for (const int peer : {own - 1, own + 1}) {
                   if (is_ring) expected.insert((peer + stages) % stages);
                   if (!is_ring && peer >= 0 && peer < stages) expected.insert(peer);
                 }
                 for (const auto& [peer, link] : grid.on_device.links) linked.insert(peer);
                 EXPECT_EQ(linked, expected) << "stage " << own << " of " << stages;
                 expect_messages(device, grid);
               });
    }
  }
}

TEST_F(Collectives, LinkTheStagesOfEachPipeline) {
  on_ranks({.pp = 2, .tp = 2}, {.sends_messages = true, .sums_ends = true}, 60,
           [&](Device& device, const comm::Grid& grid) {
             EXPECT_EQ(grid.on_device.links.size(), 1U);
             EXPECT_TRUE(grid.on_device.ends);
             EXPECT_TRUE(grid.on_device.tp);
             expect_messages(device, grid);
           });
}

TEST_F(Collectives, HaveOnlyTheCommunicatorsOfTheirUse) {
  on_ranks({.pp = 2}, {}, 60, [&](Device&, const comm::Grid& grid) {
    EXPECT_TRUE(grid.on_device.links.empty());
    EXPECT_FALSE(grid.on_device.ends);
  });
}

TEST_F(Collectives, NeedAHardwareQueueForEachStreamOfMessages) {
  for (const char* enough : {static_cast<const char*>(nullptr), "4", "8"})
    EXPECT_NO_THROW(require_hardware_queues(DeviceKind::hip, enough));
  EXPECT_NO_THROW(require_hardware_queues(DeviceKind::cuda, "2"));
  try {
    require_hardware_queues(DeviceKind::hip, "2");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(error.message().find("GPU_MAX_HW_QUEUES is 2"), std::string::npos) << error.message();
  }
}

// Stage 1 never sends: the error names its rank.
TEST_F(Collectives, NameTheStageThatDoesNotSend) {
  try {
    on_ranks({.pp = 2}, {.sends_messages = true}, 1, [&](Device& device, const comm::Grid& grid) {
      if (grid.pp.rank() == 1) {
        grid.pp.note("a long sleep");
        grid.pp.barrier();
        return;
      }
      const comm::Grid::Link& link = grid.on_device.links.at(1);
      const Buffer memory(device, 8);
      comm::DeviceCommunicator::Workspace workspace = link.receive->make_workspace(8);
      link.receive->receive(workspace, memory.data(), 8, link.peer)->wait();
      int64_t number = 0;
      device.copy_to_host(&number, memory.data(), 8);
    });
    FAIL() << "nothing failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    for (const char* words : {"has waited 1 s for sim32", "of 'messages of stage ", "rank 1 on "})
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace ingot::runtime
