// Sums over tensor-parallel ranks in the streams of simulated devices.
#include <gtest/gtest.h>

#include <cstdlib>
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

// The same bits as through host memory, which adds in the order of ranks.
TEST(DeviceSum, HasTheBitsOfHostMemory) {
  setenv("INGOT_NCCL_LIBRARY", fake_nccl, 1);
  ops::Registry registry;
  gpu::register_ops(registry, DeviceKind::sim);
  comm::run_in_process({.ranks = 3, .timeout_s = 60}, [&](const comm::Group& world) {
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
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t n : {1, 7, 8, 25, 4096, 5000}) {
        std::vector<std::byte> values(static_cast<size_t>(n) * size_of(type));
        RandomStream random(static_cast<uint64_t>(world.rank()), static_cast<uint64_t>(n));
        const Buffer numbers(*device, static_cast<size_t>(n) * sizeof(float)), x(*device, values.size());
        std::vector<float> floats(static_cast<size_t>(n));
        for (float& each : floats) each = static_cast<float>(random.normal());
        device->copy_from_host(numbers.data(), floats.data(), numbers.bytes());
        const Tensor tensor{x.data(), type, Shape{n}, device.get()};
        const auto summed = [&](nn::DeviceSum* by) {
          ops::scale(context, tensor, {numbers.data(), DType::f32, Shape{n}, device.get()}, 1);
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
      nn::gather_columns_over_ranks(pass, {out.data(), DType::f32, Shape{rows, 17}, device.get()},
                                    {part.data(), DType::f32, Shape{rows, own}, device.get()}, columns);
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
    device->set_wait_check({});
  });
  unsetenv("INGOT_NCCL_LIBRARY");
}

}  // namespace
}  // namespace ingot::parity
