// The device interface that everything above the backends uses. Each device is one object, made by its backend, owned
// by `runtime` and passed down by reference; there are no global devices. Only one thread uses a device at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/function_ref.h"

namespace ingot {

struct Operand;

enum class DeviceKind { cpu, cuda, hip, sim };

const char* name(DeviceKind kind);  // "cpu", "cuda", "hip", "sim"

// A device has in-order streams. Ops run in `compute`; copies that overlap with them run in `copy`, and collective
// operations between ranks in `gather` (weights; keys and values that pass round a ring) and `reduce` (gradients).
// Messages of a pipeline's stage to and from the stages next to it have four more, since a message waits for the other
// stage. Only an Event orders one stream against another.
enum class Stream { compute, copy, gather, reduce, from_previous, to_next, from_next, to_previous };
inline constexpr size_t num_streams = 8;
// Whether it is one of those of messages.
inline bool carries_messages(Stream stream) { return stream >= Stream::from_previous; }

// A point in a stream. An event that was never recorded counts as done. Errors of asynchronous device work are thrown
// where the host waits for it. The device must outlive its events.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream stream) = 0;   // after all work submitted to the stream so far
  virtual void wait_on(Stream stream) = 0;  // work submitted to `stream` from now on waits for the recorded point
  virtual bool done() = 0;
  virtual void wait() = 0;  // blocks the host thread
};

// A recorded sequence of ops (as a CUDA graph) that can run again with the same addresses and sizes.
class RecordedGraph {
 public:
  virtual ~RecordedGraph() = default;
  virtual void run() = 0;  // in the compute stream
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;         // as the user writes it: "cpu", "cuda:0", "sim32"
  virtual std::string arch() const = 0;         // architecture, which determines rounding: "avx512", "sm_90", "gfx942"
  virtual size_t memory_bytes() const = 0;      // total
  virtual size_t memory_available() const = 0;  // available for a new allocation now
  // Energy that the device has used since some fixed time, by all processes; nothing if the device does not report it.
  virtual std::optional<double> joules() { return std::nullopt; }

  // Zero-filled memory, 64-byte aligned. ErrorKind::resource, with the needed and the available bytes, when it fails.
  // `release` waits for pending work.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* data, size_t bytes) noexcept = 0;

  // Synchronous copies between host and device memory: they run after all work submitted to the compute stream and are
  // done when the call returns.
  virtual void copy_from_host(void* device_destination, const void* host_source, size_t bytes) = 0;
  virtual void copy_to_host(void* host_destination, const void* device_source, size_t bytes) = 0;
  // True when the host can read and write this device's memory directly, and ops are done when they return.
  virtual bool host_visible() const = 0;

  // The functions below let a device work asynchronously. The default implementations here are synchronous.

  // Host memory for asynchronous copies (page-locked where the backend supports that); 64-byte aligned, contents
  // undefined. ErrorKind::resource when it cannot be allocated.
  virtual void* allocate_pinned(size_t bytes);
  virtual void release_host(void* data, size_t bytes) noexcept;

  // Starts a copy in `stream`; the host memory must come from allocate_pinned. Until a later event of the stream is
  // done, the source must not change and the destination must not be read.
  virtual void copy_from_host_async(Stream stream, void* device_destination, const void* host_source, size_t bytes);
  virtual void copy_to_host_async(Stream stream, void* host_destination, const void* device_source, size_t bytes);
  virtual std::unique_ptr<Event> make_event();
  // Sets device memory to zeros, in the compute stream.
  virtual void fill_zero(void* data, size_t bytes);
  // While the host waits for the device's work, which may wait for other devices, `check` is called again and again
  // with the seconds so far, and at the end of the wait with 0. What it throws comes out of the call that waits. Empty:
  // none.
  virtual void set_wait_check(std::function<void(double waited_s)>) {}

  // Whether `record` is supported.
  virtual bool replays() const { return false; }
  // Calls `work` and records its ops without running them. `work` may not wait, copy or allocate, and each of its ops
  // must have run before on this device. ErrorKind::internal, naming the op, when `work` breaks these rules. Null,
  // after a warning, if the driver has not recorded all of it; `replays` is false from then on.
  virtual std::unique_ptr<RecordedGraph> record(FunctionRef<void()> work);

  // Names the op that the following work belongs to, for error messages. The strings must be constants.
  virtual void set_current_op(const char*, std::span<const Operand>) {}
};

}  // namespace ingot
