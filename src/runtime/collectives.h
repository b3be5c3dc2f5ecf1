// What ranks exchange device memory by.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/runtime/nccl.h"
#include "comm/grid.h"
#include "tensor/device.h"

namespace ingot::runtime {

struct CollectivesChoice {
  std::shared_ptr<const gpu::CollectiveLibrary> library;  // null: it goes through host memory
  std::string text;                                       // "NCCL 2.28.3"; or why it goes through host memory
};

// The library of the vendor of all ranks' devices, if each has it, in one version, and a device of its own; of
// simulated devices the stand-in for it, if `simulated`. Collective; the result is the same on all ranks, whose devices
// may differ.
CollectivesChoice choose_collectives(const Device& device, const comm::Group& ranks, bool simulated);

// What a grid's communicators are for.
struct CollectiveUses {
  bool gathers_weights = false;  // Grid::weights and expert_weights are used
  bool passes_keys = false;      // Grid::cp passes keys and values on while attention is computed
};

// A grid with communicators of a library. While it exists, what the host waits for on the device ends when another rank
// fails, and after the time-out (Device::set_wait_check), which a device's own work must not take either.
class DeviceCollectives {
 public:
  // Collective over the grid. Without a library the grid stays as it is. Tries the communicators, so that the library
  // takes the memory that it needs. The device outlives it. Errors: those of gpu::make_nccl_communicator; unavailable
  // when a trial has a wrong result.
  DeviceCollectives(const CollectivesChoice& choice, Device& device, comm::Grid grid, CollectiveUses uses,
                    double timeout_s);
  DeviceCollectives(const DeviceCollectives&) = delete;
  DeviceCollectives& operator=(const DeviceCollectives&) = delete;

  const comm::Grid& grid() const { return grid_; }
  bool has_library() const { return has_library_; }
  // After this rank has failed and notified the others: aborts operations that wait for them.
  void end() const noexcept;

 private:
  std::vector<comm::DeviceCommunicator*> communicators() const;

  // Sets the device's check, until it is destroyed.
  struct Watch {
    Device& device;
    explicit Watch(Device& watched) : device(watched) {}
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch() { device.set_wait_check({}); }
  };
  comm::Grid grid_;
  bool has_library_;
  Watch watch_;
};

}  // namespace ingot::runtime
