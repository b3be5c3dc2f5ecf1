// Sums over tensor-parallel ranks in the streams of simulated devices.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "backend/gpu/ops.h"
#include "backend/gpu/runtime/nccl.h"
#include "backend/gpu/sim/sim_device.h"
#include "base/philox.h"
#include "comm/in_process.h"
#include "nn/transfer.h"
#include "ops/elementwise.h"
#include "tests/locations.h"

namespace ingot::parity {
namespace {

// `work` gets a simulated device's pass, in which ranks add up by way of host memory, and what adds in the device's
// streams.
void with_device_sums(int ranks, const std::function<void(nn::Pass&, nn::DeviceSum&)>& work) {
  setenv("INGOT_NCCL_LIBRARY", fake_nccl, 1);
  ops::Registry registry;
  gpu::register_ops(registry, DeviceKind::sim);
  comm::run_in_process({.ranks = ranks, .timeout_s = 60}, [&](const comm::Group& world) {
    const std::unique_ptr<gpu::GpuDevice> device = gpu::sim::make_device(32);
    Arena memory(*device, nn::DeviceSum::bytes(), "sums"), scratch(*device, 1 << 20, "scratch");
    const std::shared_ptr<comm::DeviceCommunicator> communicator =
        gpu::make_nccl_communicator(gpu::open_collective_library(DeviceKind::sim), *device, world,
                                    {.group = "tp", .stream = Stream::compute, .timeout_s = 60});
    device->set_wait_check([&](double waited_s) { communicator->check(waited_s); });
    nn::DeviceSum sum(communicator, memory);
    ops::Context context{*device, registry, scratch, nullptr};
    const nn::TokenBatch batch;
    nn::Pass pass{.ops = context, .batch = batch, .adapters = {}};
    pass.tp.group = world;
    work(pass, sum);
    device->set_wait_check({});
  });
  unsetenv("INGOT_NCCL_LIBRARY");
}

// A binary tree of four ranks' numbers, on the device and by way of host memory.
TEST(DeviceSum, AddsInATree) {
  with_device_sums(4, [](nn::Pass& pass, nn::DeviceSum& sum) {
    for (const int64_t n : {1, 7, 8, 25, 4096, 5000}) {
      std::vector<std::vector<float>> of_ranks(4, std::vector<float>(static_cast<size_t>(n)));
      for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
        RandomStream random(rank, static_cast<uint64_t>(n));
        for (float& each : of_ranks[rank]) each = static_cast<float>(random.normal());
      }
      std::vector<float> expected(static_cast<size_t>(n)), found(expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        expected[i] = (of_ranks[0][i] + of_ranks[1][i]) + (of_ranks[2][i] + of_ranks[3][i]);
      Device& device = pass.ops.device;
      const Buffer x(device, found.size() * sizeof(float));
      for (nn::DeviceSum* by : {static_cast<nn::DeviceSum*>(nullptr), &sum}) {
        device.copy_from_host(x.data(), of_ranks[static_cast<size_t>(pass.tp.group.rank())].data(), x.bytes());
        pass.tp.sum = by;
        nn::add_tree_over_ranks(pass, x.view(DType::f32, Shape{n}));
        device.copy_to_host(found.data(), x.data(), x.bytes());
        EXPECT_EQ(found, expected) << n << ", rank " << pass.tp.group.rank() << (by ? ", on the device" : "");
      }
    }
  });
}

// Pairs of four ranks, and all of them, on the device and by way of host memory.
TEST(DeviceSum, AddsUpNeighbours) {
  with_device_sums(4, [](nn::Pass& pass, nn::DeviceSum& sum) {
    for (const int count : {2, 4}) {
      for (const int64_t n : {1, 7, 25, 5000}) {
        std::vector<std::vector<float>> of_ranks(4, std::vector<float>(static_cast<size_t>(n)));
        for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
          RandomStream random(rank, static_cast<uint64_t>(n));
          for (float& each : of_ranks[rank]) each = static_cast<float>(random.normal());
        }
        const int rank = pass.tp.group.rank(), first = rank / count * count;
        std::vector<float> expected = of_ranks[static_cast<size_t>(first)], found(expected.size());
        for (int other = first + 1; other < first + count; ++other) {
          for (size_t i = 0; i < expected.size(); ++i) expected[i] += of_ranks[static_cast<size_t>(other)][i];
        }
        Device& device = pass.ops.device;
        const Buffer x(device, found.size() * sizeof(float));
        for (const bool on_device : {false, true}) {
          device.copy_from_host(x.data(), of_ranks[static_cast<size_t>(rank)].data(), x.bytes());
          const Tensor tensor = x.view(DType::f32, Shape{n});
          if (on_device) {
            sum.sum_neighbours(pass.ops, tensor, count);
          } else {
            nn::sum_neighbours(device, pass.tp.group, tensor, count);
          }
          device.copy_to_host(found.data(), x.data(), x.bytes());
          EXPECT_EQ(found, expected) << count << " of " << n << ", rank " << rank
                                     << (on_device ? ", on the device" : "");
        }
      }
    }
  });
}

// The same bits as through host memory, which adds in the order of ranks.
TEST(DeviceSum, HasTheBitsOfHostMemory) {
  with_device_sums(3, [](nn::Pass& pass, nn::DeviceSum& sum) {
    Device* const device = &pass.ops.device;
    const comm::Group& world = pass.tp.group;
    ops::Context& context = pass.ops;
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t n : {1, 7, 8, 25, 4096, 5000}) {
        std::vector<std::byte> values(static_cast<size_t>(n) * size_of(type));
        RandomStream random(static_cast<uint64_t>(world.rank()), static_cast<uint64_t>(n));
        const Buffer numbers(*device, static_cast<size_t>(n) * sizeof(float)), x(*device, values.size());
        std::vector<float> floats(static_cast<size_t>(n));
        for (float& each : floats) each = static_cast<float>(random.normal());
        device->copy_from_host(numbers.data(), floats.data(), numbers.bytes());
        const Tensor tensor{x.data(), type, Shape{n}, device};
        const auto summed = [&](nn::DeviceSum* by) {
          ops::scale(context, tensor, {numbers.data(), DType::f32, Shape{n}, device}, 1);
          pass.tp.sum = by;
          nn::sum_over_ranks(pass, tensor);
          device->copy_to_host(values.data(), x.data(), values.size());
          return values;
        };
        const std::vector<std::byte> through_host = summed(nullptr);
        EXPECT_EQ(summed(&sum), through_host) << name(type) << " of " << n << ", rank " << world.rank();
      }
    }
    // Parts of unequal numbers of columns, beside each other.
    const std::vector<int64_t> columns = {5, 6, 6};
    const int64_t rows = 7, own = columns[static_cast<size_t>(world.rank())];
    const Buffer part(*device, static_cast<size_t>(rows * own) * 4), out(*device, static_cast<size_t>(rows * 17) * 4);
    std::vector<float> values(static_cast<size_t>(rows * own));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(1000 * world.rank()) + static_cast<float>(i);
    device->copy_from_host(part.data(), values.data(), part.bytes());
    for (nn::DeviceSum* by : {static_cast<nn::DeviceSum*>(nullptr), &sum}) {
      pass.tp.sum = by;
      nn::gather_columns_over_ranks(pass, {out.data(), DType::f32, Shape{rows, 17}, device},
                                    {part.data(), DType::f32, Shape{rows, own}, device}, columns);
      std::vector<float> found(static_cast<size_t>(rows * 17));
      device->copy_to_host(found.data(), out.data(), out.bytes());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t rank = 0, column = 0; rank < 3; ++rank) {
          const int64_t width = columns[static_cast<size_t>(rank)];
          for (int64_t i = 0; i < width; ++i, ++column)
            ASSERT_EQ(found[static_cast<size_t>(row * 17 + column)], static_cast<float>(1000 * rank + row * width + i));
        }
      }
    }
  });
}

}  // namespace
}  // namespace ingot::parity
