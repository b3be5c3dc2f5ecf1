#include "backend/gpu/runtime/nccl.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <vector>

#include "backend/gpu/sim/sim_device.h"
#include "base/error.h"
#include "base/machine.h"
#include "comm/host_communicator.h"
#include "comm/in_process.h"
#include "tests/backend/gpu/fake_device.h"
#include "tests/comm/device_communicator_checks.h"

namespace ingot::gpu {
namespace {

using comm::DeviceCommunicator;
using sim::Schedule;

std::shared_ptr<DeviceCommunicator> simulated(Device& device, const comm::Group& ranks, double timeout_s = 60) {
  auto& gpu = dynamic_cast<GpuDevice&>(device);
  auto communicator = make_nccl_communicator(open_collective_library(DeviceKind::sim), gpu, ranks,
                                             {.group = "dp", .timeout_s = timeout_s});
  device.set_wait_check([held = communicator.get()](double waited_s) { held->check(waited_s); });
  return communicator;
}

template <class Make>
void check_all(int ranks, Schedule schedule, Make make) {
  comm::run_in_process({.ranks = ranks, .timeout_s = 60}, [&](const comm::Group& world) {
    const std::unique_ptr<GpuDevice> device = sim::make_device(32, schedule);
    const std::shared_ptr<DeviceCommunicator> communicator = make(*device, world);
    EXPECT_EQ(communicator->rank(), world.rank());
    EXPECT_EQ(communicator->size(), ranks);
    comm::check_integers_are_reduced(*communicator, *device);
    comm::check_floats_are_reduced(*communicator, *device);
    comm::check_sections_are_scattered_and_gathered(*communicator, *device);
    comm::check_sections_are_exchanged(*communicator, *device);
    comm::check_messages_are_sent(*communicator, *device);
    comm::check_operations_are_in_the_order_of_streams(*communicator, *device);
  });
}

TEST(DeviceCommunicators, ThroughHostMemory) {
  for (const Schedule schedule : {Schedule::forward, Schedule::backward, Schedule::random}) {
    for (const int ranks : {1, 2, 3})
      check_all(ranks, schedule,
                [](Device& device, const comm::Group& world) { return comm::through_host(device, world); });
  }
}

TEST(DeviceCommunicators, Nccl) {
  const ScopedVariable library("INGOT_NCCL_LIBRARY", INGOT_FAKE_NCCL);
  for (const Schedule schedule : {Schedule::forward, Schedule::backward, Schedule::random}) {
    for (const int ranks : {1, 2, 3})
      check_all(ranks, schedule, [](Device& device, const comm::Group& world) { return simulated(device, world); });
  }
}

// A rank computes, and waits for the result, while what it reduces and gathers waits for the other rank, which begins
// after that.
TEST(Nccl, OperationsRunInStreamsBesideComputations) {
  const ScopedVariable library("INGOT_NCCL_LIBRARY", INGOT_FAKE_NCCL);
  std::promise<void> computed;
  comm::run_in_process({.ranks = 2, .timeout_s = 30}, [&](const comm::Group& world) {
    const std::unique_ptr<GpuDevice> device = sim::make_device(32);
    const auto in = [&](const char* name, Stream stream) {
      return make_nccl_communicator(open_collective_library(DeviceKind::sim), *device, world,
                                    {.group = name, .stream = stream, .timeout_s = 30});
    };
    const std::shared_ptr<DeviceCommunicator> reduce = in("dp", Stream::reduce), gather = in("weights", Stream::gather);
    device->set_wait_check([&](double waited_s) {
      reduce->check(waited_s);
      gather->check(waited_s);
    });
    const Buffer sum(*device, 8), share(*device, 8), all(*device, 16), other(*device, 8);
    DeviceCommunicator::Workspace reduces = reduce->make_workspace(8), gathers = gather->make_workspace(16);
    std::vector<int64_t> found(2, -1);
    for (const bool first : {true, false}) {  // the host waits where ranks connect
      const int64_t own = 3 + world.rank();
      device->copy_from_host(sum.data(), &own, 8);
      device->copy_from_host(share.data(), &own, 8);
      if (!first && world.rank() == 1 &&
          computed.get_future().wait_for(std::chrono::seconds(60)) != std::future_status::ready)
        throw_error(ErrorKind::internal, "the first rank waits for this one");
      const size_t bytes[] = {8, 8};
      const auto gathered = gather->all_gather(gathers, all.data(), share.data(), bytes);
      const auto reduced = reduce->all_reduce(reduces, sum.data(), 1, comm::Number::i64, comm::ReduceOp::sum);
      device->fill_zero(other.data(), 8);
      device->copy_to_host(found.data(), other.data(), 8);
      EXPECT_EQ(found[0], 0);
      if (!first && world.rank() == 0) computed.set_value();
      reduced->wait();
      gathered->wait();
      device->copy_to_host(found.data(), sum.data(), 8);
      EXPECT_EQ(found[0], 7);
      device->copy_to_host(found.data(), all.data(), 16);
      EXPECT_EQ(found, (std::vector<int64_t>{3, 4}));
    }
  });
}

// Both ranks send to the other before either receives: by a communicator for each direction they arrive, and a send
// waits for its receive alone.
TEST(Nccl, MessagesOfTwoCommunicatorsDoNotWaitForEachOther) {
  const ScopedVariable library("INGOT_NCCL_LIBRARY", INGOT_FAKE_NCCL);
  for (const Schedule schedule : {Schedule::forward, Schedule::backward, Schedule::random}) {
    comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& world) {
      const std::unique_ptr<GpuDevice> device = sim::make_device(64, schedule);
      const int own = world.rank(), other = 1 - own;
      std::vector<std::shared_ptr<DeviceCommunicator>> from;  // by sender
      for (const int sender : {0, 1}) {
        const Stream stream = sender == own ? Stream::to_next : Stream::from_next;
        from.push_back(
            make_nccl_communicator(open_collective_library(DeviceKind::sim), *device, world,
                                   {.group = "messages", .stream = stream, .max_blocks = 8, .timeout_s = 60}));
      }
      device->set_wait_check([&](double waited_s) {
        for (const auto& each : from) each->check(waited_s);
      });
      constexpr size_t count = 6;  // messages of each direction
      const Buffer sent(*device, count * 8), received(*device, count * 8);
      std::vector<int64_t> numbers(count);
      for (size_t i = 0; i < count; ++i) numbers[i] = 100 * own + static_cast<int64_t>(i);
      device->copy_from_host(sent.data(), numbers.data(), sent.bytes());
      std::vector<DeviceCommunicator::Workspace> workspaces;
      workspaces.reserve(2 * count);
      std::vector<DeviceCommunicator::PendingOperation> operations;
      for (size_t i = 0; i < 2 * count; ++i) {
        DeviceCommunicator& by = *from[static_cast<size_t>(i < count ? own : other)];
        DeviceCommunicator::Workspace& workspace = workspaces.emplace_back(by.make_workspace(8));
        auto* data = static_cast<std::byte*>(i < count ? sent.data() : received.data()) + i % count * 8;
        operations.push_back(i < count ? by.send(workspace, data, 8, other) : by.receive(workspace, data, 8, other));
      }
      for (const auto& operation : operations) operation->wait();
      device->copy_to_host(numbers.data(), received.data(), received.bytes());
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(numbers[i], 100 * other + static_cast<int64_t>(i));
      device->set_wait_check({});
    });
  }
}

// What the two ranks of `body` end with, the first to fail first.
template <class Body>
Error failure_of(double timeout_s, Body body) {
  const ScopedVariable library("INGOT_NCCL_LIBRARY", INGOT_FAKE_NCCL);
  try {
    comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& world) {
      const std::unique_ptr<GpuDevice> device = sim::make_device(32);
      const std::shared_ptr<DeviceCommunicator> communicator = simulated(*device, world, timeout_s);
      body(world, *device, *communicator);
    });
  } catch (const Error& error) {
    return error;
  }
  throw_error(ErrorKind::internal, "nothing failed");
}

// Starts `count` reductions of five numbers and waits for the last one on the host.
void reduce(Device& device, DeviceCommunicator& communicator, int count, size_t numbers = 5) {
  const Buffer memory(device, numbers * sizeof(int64_t));
  DeviceCommunicator::Workspace workspace = communicator.make_workspace(memory.bytes());
  for (int i = 0; i < count; ++i)
    communicator.all_reduce(workspace, memory.data(), numbers, comm::Number::i64, comm::ReduceOp::sum)->wait();
  std::vector<int64_t> values(numbers);
  device.copy_to_host(values.data(), memory.data(), memory.bytes());
}

TEST(Nccl, TimesOutWhenARankDoesNotCome) {
  const ScopedVariable hangs("FAKE_NCCL_HANGS", "1 2");
  const Error error = failure_of(0.5, [](const comm::Group&, Device& device, DeviceCommunicator& communicator) {
    reduce(device, communicator, 4);
  });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  const std::string& text = error.message();
  EXPECT_NE(text.find("of 'dp' has waited 0.5 s for sim32, after operation 4 of 'dp', all_reduce of 5: all "
                      "other ranks wait there too"),
            std::string::npos)
      << text;
}

// A send waits for the receive, and what follows in its communicator for both: with one communicator for both
// directions two ranks that send first wait for each other.
TEST(Nccl, SendsOfOneCommunicatorWaitForReceives) {
  const Error error = failure_of(0.5, [](const comm::Group& world, Device& device, DeviceCommunicator& communicator) {
    const Buffer sent(device, 8), received(device, 8);
    DeviceCommunicator::Workspace sends = communicator.make_workspace(8), receives = communicator.make_workspace(8);
    const auto send = communicator.send(sends, sent.data(), 8, 1 - world.rank());
    const auto receive = communicator.receive(receives, received.data(), 8, 1 - world.rank());
    send->wait();
    receive->wait();
    int64_t number = 0;
    device.copy_to_host(&number, received.data(), 8);
  });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_NE(error.message().find("of 'dp' has waited 0.5 s for sim32, after operation 2 of 'dp', message of 8"),
            std::string::npos)
      << error.message();
}

TEST(Nccl, NamesTheRankThatIsBehind) {
  std::promise<void> failed;
  const Error error = failure_of(0.5, [&](const comm::Group& world, Device& device, DeviceCommunicator& communicator) {
    reduce(device, communicator, 1);
    if (world.rank() == 1) return failed.get_future().wait();
    try {
      reduce(device, communicator, 1);
    } catch (...) {
      failed.set_value();
      throw;
    }
  });
  EXPECT_NE(error.message().find("after operation 2 of 'dp', all_reduce of 5: rank 1 on " + host_name() +
                                 " is in operation 1 of 'dp', all_reduce of 5"),
            std::string::npos)
      << error.message();
}

TEST(Nccl, EndsWhenAnotherRankFails) {
  for (const bool at_start : {true, false}) {
    const ScopedVariable library("INGOT_NCCL_LIBRARY", INGOT_FAKE_NCCL);
    const Error error = failure_of(60, [&](const comm::Group& world, Device& device, DeviceCommunicator& communicator) {
      reduce(device, communicator, 1);
      if (world.rank() == 1) throw_error(ErrorKind::not_found, "no more data");
      if (at_start) {
        simulated(device, world);  // waits for the other rank
      } else {
        reduce(device, communicator, 2);
      }
    });
    EXPECT_EQ(error.kind(), ErrorKind::not_found) << error.message();
    EXPECT_NE(error.message().find("rank 1: no more data"), std::string::npos) << error.message();
  }
}

TEST(Nccl, ReportsAsynchronousErrors) {
  const ScopedVariable fails("FAKE_NCCL_FAILS", "0 1");
  const Error error = failure_of(60, [](const comm::Group&, Device& device, DeviceCommunicator& communicator) {
    reduce(device, communicator, 3);
  });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_NE(error.message().find("NCCL 2.28.3 on rank 0 of 'dp'"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("unhandled system error"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("a link is down"), std::string::npos) << error.message();
}

// The stand-in finds what the library would hang on.
TEST(Nccl, ComparesWhatRanksAskFor) {
  const Error error = failure_of(60, [](const comm::Group& world, Device& device, DeviceCommunicator& communicator) {
    reduce(device, communicator, 1, world.rank() == 0 ? 5 : 6);
  });
  EXPECT_NE(error.message().find("operation 0 differs on rank"), std::string::npos) << error.message();
}

TEST(Nccl, RefusesOtherLibraries) {
  const auto reason = [](DeviceKind kind, const char* file) {
    const ScopedVariable library("INGOT_NCCL_LIBRARY", file);
    try {
      open_collective_library(kind);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unavailable);
      return error.message();
    }
    return std::string("opened");
  };
  EXPECT_NE(reason(DeviceKind::cuda, INGOT_FAKE_NCCL).find("works on simulated devices only"), std::string::npos);
  EXPECT_NE(reason(DeviceKind::cuda, INGOT_FAKE_CUBLASLT).find("has no function ncclGetVersion"), std::string::npos);
  EXPECT_NE(reason(DeviceKind::cuda, "/nowhere/libnccl.so.2").find("/nowhere/libnccl.so.2"), std::string::npos);
  EXPECT_EQ(reason(DeviceKind::sim, INGOT_FAKE_NCCL), "opened");
}

}  // namespace
}  // namespace ingot::gpu
