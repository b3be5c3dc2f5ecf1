// What ranks exchange device memory by.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/runtime/nccl.h"
#include "base/function_ref.h"
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

// Which communicators a run uses besides those of its grid's gradients and layers. Equal on all ranks.
struct CollectivesUse {
  bool gathers_weights = false;  // Grid::weights and expert_weights
  bool passes_keys = false;      // Grid::cp passes keys and values on while attention is computed
  bool sends_messages = false;   // between neighbouring ranks of a pipeline
  bool is_ring = false;          // of these, also between the last and the first (spec::is_ring)
  bool sums_ends = false;        // Grid::ends: a tied embedding that two stages use
  bool sums_stages = false;      // Grid::pp: to measure how fast stages communicate
};

// HIP divides the streams of each priority among GPU_MAX_HW_QUEUES hardware queues, by default four. `setting` is its
// value; null: not set. ErrorKind::usage where the streams of a pipeline's messages would have to share them: one that
// waits for its receive would then stop others, for ever if that receive waits for them.
void require_hardware_queues(DeviceKind kind, const char* setting);

// A grid with communicators of a library. While it exists, what the host waits for on the device ends when another rank
// fails, and after the time-out (Device::set_wait_check), which a device's own work must not take either.
class DeviceCollectives {
 public:
  // Collective over the grid. Without a library the grid stays as it is. Tries the communicators, so that the library
  // takes the memory that it needs. The device outlives it. Errors: those of gpu::make_nccl_communicator; unavailable
  // when a trial has a wrong result.
  //
  // A rank of a pipeline has two communicators of two ranks for each neighbour, at most four. They are made in three
  // rounds (the neighbours 0 and 1, 2 and 3, ...; 1 and 2, ...; the last and the first), whatever the number of stages.
  DeviceCollectives(const CollectivesChoice& choice, Device& device, comm::Grid grid, const CollectivesUse& use,
                    double timeout_s);
  DeviceCollectives(const DeviceCollectives&) = delete;
  DeviceCollectives& operator=(const DeviceCollectives&) = delete;
  ~DeviceCollectives();

  const comm::Grid& grid() const { return grid_; }
  bool has_library() const { return has_library_; }
  // After this rank has failed and notified the others: aborts operations that wait for them.
  void end() const noexcept;

 private:
  using Made = std::shared_ptr<comm::DeviceCommunicator>;
  // Those of collective operations.
  std::vector<comm::DeviceCommunicator*> communicators() const;
  // Makes and tries those of messages.
  void make_links(bool is_ring, Device& device,
                  FunctionRef<Made(const comm::Group& ranks, const std::string& name, Stream stream)> make);

  // Sets the device's check, until it is destroyed.
  struct Watch {
    Device& device;
    explicit Watch(Device& watched) : device(watched) {}
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch() { device.set_wait_check({}); }
  };
  comm::Grid grid_;
  std::vector<Made> links_;  // Grid::OnDevice::links, in the order in which both ranks of each have made them
  bool has_library_;
  Watch watch_;
};

}  // namespace ingot::runtime
