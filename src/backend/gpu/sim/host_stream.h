// What GpuDevice::native_stream() points to on a simulated device: the stream as a library sees it that stands in for a
// vendor's library in tests.
#pragma once

#include <functional>

namespace ingot::gpu::sim {

class HostStream {
 public:
  virtual ~HostStream() = default;
  // Appends work, which is called again and again until it returns true. What follows in the stream runs after that.
  virtual void add(std::function<bool()> work) = 0;
  // Runs the work that is in the stream.
  virtual void finish() = 0;
};

}  // namespace ingot::gpu::sim
