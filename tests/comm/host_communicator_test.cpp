#include "comm/host_communicator.h"

#include <gtest/gtest.h>

#include "comm/in_process.h"
#include "tests/comm/device_communicator_checks.h"
#include "tests/counting_device.h"

namespace ingot::comm {
namespace {

// Simulated GPUs are in tests/backend/gpu/nccl_test.cpp.
TEST(HostCommunicator, PassesTheChecks) {
  for (const bool visible : {true, false}) {
    for (const int ranks : {1, 2, 4}) {
      run_in_process({.ranks = ranks, .timeout_s = 60}, [&](const Group& world) {
        CountingDevice device(visible);
        const std::shared_ptr<DeviceCommunicator> communicator = through_host(device, world);
        EXPECT_EQ(communicator->staging_bytes(1000), visible ? 0 : 1000);
        check_integers_are_reduced(*communicator, device);
        check_floats_are_reduced(*communicator, device);
        check_sections_are_scattered_and_gathered(*communicator, device);
        check_sections_are_exchanged(*communicator, device);
        check_messages_are_sent(*communicator, device);
        check_operations_are_in_the_order_of_streams(*communicator, device);
      });
    }
  }
}

}  // namespace
}  // namespace ingot::comm
