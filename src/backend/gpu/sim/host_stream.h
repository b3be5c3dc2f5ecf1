// What GpuDevice::native_stream() points to on a simulated device: the stream as a library sees it that stands in for a
// vendor's library in tests.
#pragma once

#include <functional>

namespace ingot::gpu::sim {

class HostStream {
 public:
  virtual ~HostStream() = default;
  // Appends work, which is called again and again until it returns true. What follows in the stream runs after that. It
  // must not use streams.
  virtual void add(std::function<bool()> work) = 0;
  // Runs the work that is in the stream.
  virtual void finish() = 0;
  // Runs the work of other streams that this one waits for, and not what add() has appended; where the stream has work
  // of the device itself, the same as finish(). Returns whether nothing is left in the stream.
  virtual bool prepare() = 0;
};

}  // namespace ingot::gpu::sim
