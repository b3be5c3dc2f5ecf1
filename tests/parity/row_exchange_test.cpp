// Rows that tensor-parallel ranks share, exchanged in the streams of simulated devices and by way of host memory.
#include "nn/row_exchange.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "backend/gpu/ops.h"
#include "backend/gpu/runtime/nccl.h"
#include "backend/gpu/sim/sim_device.h"
#include "base/philox.h"
#include "comm/host_communicator.h"
#include "comm/in_process.h"
#include "ops/elementwise.h"
#include "tests/locations.h"

namespace ingot::parity {
namespace {

constexpr int ranks = 3;
constexpr int64_t rows = 4, features = 5;  // of each rank; of a row

std::vector<float> values_of(int rank) {
  std::vector<float> values(ranks * rows * features);
  RandomStream random(static_cast<uint64_t>(rank), 1);
  for (float& each : values) each = static_cast<float>(random.normal());
  return values;
}

TEST(RowExchange, GathersRowsAndSumsToThem) {
  setenv("INGOT_NCCL_LIBRARY", fake_nccl, 1);
  ops::Registry registry;
  gpu::register_ops(registry, DeviceKind::sim);
  comm::run_in_process({.ranks = ranks, .timeout_s = 60}, [&](const comm::Group& world) {
    const std::unique_ptr<gpu::GpuDevice> device = gpu::sim::make_device(32);
    Arena scratch(*device, 1 << 16, "scratch");
    ops::Context context{*device, registry, scratch, nullptr};
    const std::shared_ptr<comm::DeviceCommunicator> library =
        gpu::make_nccl_communicator(gpu::open_collective_library(DeviceKind::sim), *device, world,
                                    {.group = "tp", .stream = Stream::compute, .timeout_s = 60});
    device->set_wait_check([&](double waited_s) { library->check(waited_s); });
    const int rank = world.rank();
    // In fp32, in the order of ranks.
    std::vector<float> expected(rows * features);
    for (int other = 0; other < ranks; ++other) {
      const std::vector<float> all = values_of(other);
      const auto begin = static_cast<size_t>(rank * rows * features);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] = (other == 0 ? 0 : expected[i]) + all[begin + i];
    }
    const std::vector<float> own_values = values_of(rank);
    const Buffer all_memory(*device, own_values.size() * sizeof(float));
    const Buffer own_memory(*device, expected.size() * sizeof(float));
    const Tensor all = all_memory.view(DType::f32, Shape{ranks * rows, features});
    const Tensor own = own_memory.view(DType::f32, Shape{rows, features});
    for (const auto& communicator : {library, comm::through_host(*device, world)}) {
      nn::RowExchange exchange(communicator, all_memory.bytes());
      EXPECT_EQ(exchange.own(ranks * rows), (spec::Range{rank * rows, (rank + 1) * rows}));
      device->copy_from_host(all.data, own_values.data(), all.bytes());
      exchange.sum(context, own, all);
      std::vector<float> found(expected.size());
      device->copy_to_host(found.data(), own.data, own.bytes());
      EXPECT_EQ(found, expected) << communicator->name() << ", rank " << rank;

      device->copy_from_host(own.data, own_values.data(), own.bytes());
      exchange.gather(context, all, own);
      std::vector<float> gathered(own_values.size());
      device->copy_to_host(gathered.data(), all.data, all.bytes());
      for (int other = 0; other < ranks; ++other) {
        const std::vector<float> theirs = values_of(other);
        for (size_t i = 0; i < expected.size(); ++i)
          ASSERT_EQ(gathered[static_cast<size_t>(other) * expected.size() + i], theirs[i]) << communicator->name();
      }
    }
    device->set_wait_check({});
  });
  unsetenv("INGOT_NCCL_LIBRARY");
}

}  // namespace
}  // namespace ingot::parity
