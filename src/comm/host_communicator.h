// Device communicators over a group, whose transport works on host memory.
#pragma once

#include <memory>

#include "comm/device_communicator.h"
#include "comm/group.h"

namespace ingot::comm {

// Works on the device's memory itself where the host can access it; else copies it to page-locked host memory and back.
// A copy to the host overlaps with work that is submitted later; the host waits for it when an operation is waited for,
// and for the other ranks. An all-gather, an all-to-all and a send wait for the copy when they begin. Sums are in the
// order of ranks. The device outlives the communicator.
std::shared_ptr<DeviceCommunicator> through_host(Device& device, const Group& ranks);

}  // namespace ingot::comm
