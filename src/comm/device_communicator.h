// Collective operations and messages on device memory, between ranks that have one device each. Either a library of the
// device's vendor does them in the device's own streams (NCCL, RCCL), or they go through host memory
// (comm/host_communicator.h).
//
// All ranks of a communicator start its collective operations in the same order and with the same sizes. An operation
// begins after all work that was submitted before to the stream that it follows, and its memory belongs to it until
// work that was submitted after wait() uses it. Only the thread that uses the device uses a communicator.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "comm/transport.h"
#include "tensor/staging.h"

namespace ingot::comm {

class DeviceCommunicator {
 public:
  // A started operation. One that is destroyed without wait() must not be followed by others of its communicator.
  class Operation {
   public:
    virtual ~Operation() = default;
    // Work that is submitted to the compute stream from now on comes after the operation. Call it once. Errors: those
    // of Transport::Operation::wait().
    virtual void wait() = 0;
  };
  using PendingOperation = std::unique_ptr<Operation>;

  // What one operation at a time needs besides its arguments. Made by make_workspace(); outlives its operations.
  struct Workspace {
    PinnedBuffer staging;  // empty where data does not go through other host memory
    std::unique_ptr<Event> ready, done;
  };

  virtual ~DeviceCommunicator() = default;
  virtual std::string name() const = 0;  // "NCCL 2.28.3", "host memory"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // For Device::set_wait_check(), where operations run in the device's streams: the host then waits neither for them
  // nor for other ranks. Errors: of a rank that has failed, of an operation that has, and after the communicator's
  // time-out.
  virtual void check(double /*waited_s*/) {}
  // After an error, also one of check(): ends operations in the device's streams that would wait for other ranks. The
  // communicator cannot be used any more.
  virtual void end() noexcept {}

  // Host memory of the workspace of operations on at most `bytes`.
  virtual size_t staging_bytes(size_t bytes) const = 0;
  virtual Workspace make_workspace(size_t bytes) = 0;

  // data [count], in place: the reduction over all ranks. Sums of integers are exact; the order in which floating-point
  // numbers are added is that of ranks, or a library's own.
  virtual PendingOperation all_reduce(Workspace& workspace, void* data, size_t count, Number number,
                                      ReduceOp combine) = 0;
  // all [sum of counts], by rank: rank r's section receives the reduction of that section; on each rank the others'
  // sections are undefined afterwards. Sums as above.
  virtual PendingOperation reduce_scatter(Workspace& workspace, void* all, std::span<const size_t> counts,
                                          Number number, ReduceOp combine) = 0;
  // all [sum of bytes] receives the `own` of every rank, bytes[r] from rank r, in rank order. `own` may be this rank's
  // section of `all`. Begins after the work in `after`.
  virtual PendingOperation all_gather(Workspace& workspace, void* all, const void* own, std::span<const size_t> bytes,
                                      Stream after = Stream::compute) = 0;
  // `in` has a section for each rank, of in_bytes[r], and `out` receives one from each rank, of out_bytes[r]; both are
  // in rank order and share no memory. The workspace is for all bytes of both.
  virtual PendingOperation all_to_all(Workspace& workspace, void* out, std::span<const size_t> out_bytes,
                                      const void* in, std::span<const size_t> in_bytes) = 0;
  // A message of `bytes` to or from one other rank, which starts the other side of it with the same size. Messages from
  // one rank to another arrive in the order in which they were sent. A send may wait for the receive. In a library's
  // communicator an operation also waits for the one before it, so messages that must not wait for each other, as those
  // of opposite directions, need communicators of their own.
  virtual PendingOperation send(Workspace& workspace, const void* data, size_t bytes, int to) = 0;
  virtual PendingOperation receive(Workspace& workspace, void* data, size_t bytes, int from) = 0;
};

}  // namespace ingot::comm
