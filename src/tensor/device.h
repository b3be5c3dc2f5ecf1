// The small device interface that everything above the backends sees. One object a device, made by its backend and
// owned by `app`; handed down by reference, never global. One thread uses a device at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/function_ref.h"

namespace ingot {

struct Operand;

enum class DeviceKind { cpu, cuda, hip, sim };

const char* name(DeviceKind kind);  // "cpu", "cuda", "hip", "sim"

// A device does its work in two streams, each in the order it was given. Ops run in `compute`; copies that go on
// meanwhile run in `copy`. Only an Event orders the one by the other.
enum class Stream { compute, copy };

// A place in a stream; before the first record it is behind nothing. Errors of the device's work come out where the
// host waits for it. The device outlives its events.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream stream) = 0;  // behind all that the stream was given so far
  virtual void hold(Stream stream) = 0;    // what the stream is given from now on waits for what is recorded now
  virtual bool done() = 0;
  virtual void wait() = 0;  // the host's thread
};

// Ops that were recorded once and run again with the same addresses and sizes.
class Replay {
 public:
  virtual ~Replay() = default;
  virtual void run() = 0;  // in the compute stream
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;         // as the user writes it: "cpu", "cuda:0", "sim32"
  virtual std::string arch() const = 0;         // what decides rounding: "avx512", "sm_90", "gfx942"
  virtual size_t memory_bytes() const = 0;      // in all
  virtual size_t memory_available() const = 0;  // now, for a new allocation
  // Energy that it has taken since some time, whatever else runs on it; nothing where it does not tell.
  virtual std::optional<double> joules() { return std::nullopt; }

  // Zero-filled memory, 64-byte aligned. ErrorKind::resource, with what is needed and what is there, when it fails.
  // `release` waits for work that is under way.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* data, size_t bytes) noexcept = 0;

  // Copies between host and device memory behind all that the compute stream was given, done when the call returns.
  virtual void copy_from_host(void* device_destination, const void* host_source, size_t bytes) = 0;
  virtual void copy_to_host(void* host_destination, const void* device_source, size_t bytes) = 0;
  // True when the host may read and write this device's memory directly, and ops are done when they return.
  virtual bool host_visible() const = 0;

  // What follows is how a device works on its own time. These implementations do everything at once.

  // Host memory that the device's copies can reach while the host does something else (page-locked where there is such
  // a thing); 64-byte aligned, contents undefined. ErrorKind::resource when there is none.
  virtual void* allocate_host(size_t bytes);
  virtual void release_host(void* data, size_t bytes) noexcept;

  // Copies in `stream`, host memory being allocate_host's. Until a later event of the stream is done the source must
  // not change and the destination must not be looked at.
  virtual void start_copy_from_host(Stream stream, void* device_destination, const void* host_source, size_t bytes);
  virtual void start_copy_to_host(Stream stream, void* host_destination, const void* device_source, size_t bytes);
  virtual std::unique_ptr<Event> make_event();

  // Whether `record` can be called.
  virtual bool replays() const { return false; }
  // Calls `work`, whose ops are recorded and not run. `work` may neither wait, copy nor allocate, and every one of its
  // ops must have run before on this device. ErrorKind::internal, naming the op, when it does not keep to this.
  virtual std::unique_ptr<Replay> record(FunctionRef<void()> work);

  // Says what the work that follows is for: errors name it. The strings are constants.
  virtual void begin_op(const char*, std::span<const Operand>) {}
};

}  // namespace ingot
