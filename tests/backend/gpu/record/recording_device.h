// A simulated device that hands on each kernel's launch with the device memory before and after it, while the op table
// runs; or a device of a given architecture that executes nothing, for the sizes of its launches.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/sim/executor.h"
#include "ops/testing/op_table.h"

namespace ingot {

// The address of the device's memory: free in every process, and below the limit of tinygrad's emulator (4 TiB).
inline constexpr size_t recorded_base = size_t{1} << 40;

// An allocation.
struct RecordedRegion {
  size_t address = 0;
  size_t bytes = 0;
  std::string type;      // of its elements; "scratch" for what the op table has no type for
  double tolerance = 0;  // tensor/tolerance.h; relative to the largest value of the region
};

struct RecordedLaunch {
  std::string kernel, source, op, op_case;
  int earlier = 0;  // launches of this kernel in the same run of the case
  gpu::Grid grid;
  int threads = 0;
  size_t dynamic_shared_bytes = 0;
  std::vector<std::byte> args;
  std::vector<std::byte> before, after;  // memory from recorded_base on; empty if nothing is executed
  std::vector<RecordedRegion> regions;
};

class RecordingDevice : public gpu::GpuDevice {
 public:
  // `lanes` of a warp: 32 or 64. `launched` is called after each launch. With an AMD architecture ("gfx1100") the ops
  // choose kernels and grids as for that GPU, and nothing is executed.
  RecordingDevice(int lanes, std::function<void(RecordedLaunch&&)> launched, std::string architecture = {});
  ~RecordingDevice() override;
  RecordingDevice(const RecordingDevice&) = delete;
  RecordingDevice& operator=(const RecordingDevice&) = delete;

  // Runs all cases of the ops whose name matches the regular expression, with every implementation. Returns their
  // number.
  size_t run_op_table(const std::string& ops);

  DeviceKind kind() const override { return executes() ? DeviceKind::sim : DeviceKind::hip; }
  std::string name() const override;
  std::string arch() const override { return executes() ? name() : architecture_; }
  size_t memory_bytes() const override;
  size_t memory_available() const override { return memory_bytes() - used_; }
  int warp_width() const override { return lanes_; }
  void* allocate(size_t bytes) override;
  void release(void*, size_t) noexcept override;
  void copy_from_host(void* destination, const void* source, size_t bytes) override;
  void copy_to_host(void* destination, const void* source, size_t bytes) override;
  void launch(const gpu::KernelInfo& kernel, const void* args, gpu::Grid grid, size_t dynamic_shared_bytes) override;

 private:
  bool executes() const { return architecture_.empty(); }
  bool run(const ops::Registry& registry, const ops::testing::OpCase& op_case);
  void set_types(const ops::testing::OpCase& op_case, const ops::testing::Arguments& arguments);

  gpu::sim::Executor executor_;
  int lanes_;
  std::function<void(RecordedLaunch&&)> launched_;
  std::string architecture_;
  std::byte* memory_ = nullptr;
  size_t used_ = 0;
  int live_ = 0;
  const ops::testing::OpCase* case_ = nullptr;
  std::map<std::string, int> launches_;  // by kernel, in this run of the case
  std::vector<RecordedRegion> regions_;
};

}  // namespace ingot
