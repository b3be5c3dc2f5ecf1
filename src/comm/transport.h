// The interface that a transport implements: operations of one rank with the other ranks of its group. All other code
// uses comm::Group.
//
// All ranks of a group start its collective operations in the same order and with the same sizes. Buffers are host
// memory and belong to the operation until it has been waited for. Only one thread at a time uses a transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"

namespace ingot::comm {

enum class Number { i32, i64, f32, f64 };

// i64 and i32 sums are exact; the caller makes sure that they do not overflow. Floating-point sums are ((x0 + x1) + x2)
// + ... in rank order, each in its own type, so their bits depend on the number of ranks and on nothing else. Inputs of
// `max` must not be NaN.
enum class ReduceOp { sum, max };

class Transport {
 public:
  // A started operation. Waiting for it again after a success does nothing. One that is destroyed without wait() no
  // longer accesses user memory, but its group cannot be used any more.
  class Operation {
   public:
    virtual ~Operation() = default;
    // Errors: `unavailable` when other ranks do not take part within the transport's timeout; the error of a failed
    // rank.
    virtual void wait() = 0;
  };
  using PendingOperation = std::unique_ptr<Operation>;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place: data [count] holds this rank's values before and the reduction over all ranks after.
  virtual PendingOperation all_reduce(void* data, size_t count, Number number, ReduceOp combine) = 0;
  // `all` [sum of counts] has the same layout on every rank; rank r receives the reduction of section r (counts[r]
  // elements, after the sections of lower ranks). `own` may be this rank's section of `all`; the rest of `all` is
  // unchanged.
  virtual PendingOperation reduce_scatter(void* own, const void* all, std::span<const size_t> counts, Number number,
                                          ReduceOp combine) = 0;
  // `all` [sum of bytes] receives the `own` of every rank, bytes[r] from rank r, in rank order. `own` may be this
  // rank's section of `all`.
  virtual PendingOperation all_gather(void* all, const void* own, std::span<const size_t> bytes) = 0;
  virtual PendingOperation broadcast(void* data, size_t bytes, int root) = 0;
  // Messages between two ranks arrive in the order in which they were sent: the first receive that is started gets the
  // first one, and so on, in whatever order they are waited for. Both sides pass the same size.
  virtual PendingOperation send(const void* data, size_t bytes, int to) = 0;
  virtual PendingOperation receive(void* data, size_t bytes, int from) = 0;
  virtual PendingOperation barrier() = 0;

  // Collective: makes a group for each `color`, its ranks ordered by (key, rank in this group). `name` is for messages.
  virtual std::unique_ptr<Transport> split(int color, int key, const std::string& name) = 0;

  // Throws the error of a rank that is known to have failed.
  virtual void require_running() = 0;
  // What this rank does outside of the transport's operations, for behind().
  virtual void note(std::string activity) = 0;
  // Which ranks keep this one waiting in what it has noted, for the message of a time-out: "rank 3 on node7 does not
  // answer". Not collective; takes seconds.
  virtual std::string behind() = 0;
  // Reports that this rank cannot continue: every operation that other ranks wait for ends with an error that holds
  // `why`.
  virtual void fail(const Error& why) noexcept = 0;
};

}  // namespace ingot::comm
