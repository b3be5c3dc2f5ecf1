// NCCL, and RCCL, which has the same functions and numbers: collective operations and messages in a device's streams.
#pragma once

#include <memory>
#include <string>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/runtime/vendor_library.h"
#include "comm/device_communicator.h"
#include "comm/group.h"

namespace ingot::gpu {

// What can be said without a device. INGOT_NCCL_LIBRARY and INGOT_RCCL_LIBRARY name a file to load instead.
LibraryInfo info_of_nccl();
LibraryInfo info_of_rccl();

// The library of a kind of device. Simulated devices have none, but for a stand-in that INGOT_NCCL_LIBRARY names, which
// works on sim::HostStream.
class CollectiveLibrary;

// Errors: unavailable when there is no library, or none of a supported version.
std::shared_ptr<const CollectiveLibrary> open_collective_library(DeviceKind kind);
std::string name_of(const CollectiveLibrary& library);  // "NCCL 2.28.3"

struct NcclSettings {
  std::string group;               // name of the ranks, for messages: "dp"
  Stream stream = Stream::reduce;  // that operations run in
  // Thread blocks that an operation has on the device at most, also while it waits for other ranks; 0: the library
  // chooses.
  int max_blocks = 0;
  double timeout_s = 600;  // that the host waits for the device, and for the other ranks at the start
};

// Collective over `ranks`, which have different devices of the kind. The host waits for other ranks here, and where an
// operation connects ranks for the first time. Sums of floating-point numbers are added in the library's order. The
// device outlives the communicator. Errors: unavailable, with the library's own words.
std::shared_ptr<comm::DeviceCommunicator> make_nccl_communicator(std::shared_ptr<const CollectiveLibrary> library,
                                                                 GpuDevice& device, comm::Group ranks,
                                                                 NcclSettings settings);

}  // namespace ingot::gpu
