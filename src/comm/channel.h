// What a transport implements: operations of one rank with the others of its group. Everything above uses comm::Group.
//
// All ranks of a group begin its collective operations in the same order and with the same sizes. Memory is the host's
// and belongs to the operation until it was waited for. One thread at a time uses a channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"

namespace ingot::comm {

enum class Number { i32, i64, f32, f64 };

// i64 and i32 sums are exact: the caller sees to it that they fit. Floating-point sums are ((x0 + x1) + x2) + ... in
// the order of ranks, each in the type, so their bits depend on the number of ranks and on nothing else. Values of
// which the largest is taken are not NaN.
enum class Combine { sum, max };

class Channel {
 public:
  // An operation that has begun. Waiting for it again does nothing. Destroyed before it was waited for it takes no
  // memory's address with it, but the group is of no more use.
  class Operation {
   public:
    virtual ~Operation() = default;
    // Errors: `unavailable` when the others do not come within the transport's time-out; what a rank that failed said.
    virtual void wait() = 0;
  };
  using Begun = std::unique_ptr<Operation>;

  virtual ~Channel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // data [count], of this rank before and of all ranks together after.
  virtual Begun all_reduce(void* data, size_t count, Number number, Combine combine) = 0;
  // all [sum of counts], the same layout everywhere: rank r gets what section r (counts[r] elements, behind those of
  // the ranks before) comes to. `own` may be this rank's section of `all`; the rest of `all` is unchanged.
  virtual Begun reduce_scatter(void* own, const void* all, std::span<const size_t> counts, Number number,
                               Combine combine) = 0;
  // all [sum of bytes] becomes the ranks' `own`, of bytes[r] each, one behind the other. `own` may be its place in
  // `all`.
  virtual Begun all_gather(void* all, const void* own, std::span<const size_t> bytes) = 0;
  virtual Begun broadcast(void* data, size_t bytes, int root) = 0;
  // Between two ranks messages arrive in the order they were sent; sizes agree.
  virtual Begun send(const void* data, size_t bytes, int to) = 0;
  virtual Begun receive(void* data, size_t bytes, int from) = 0;
  virtual Begun barrier() = 0;

  // Collective: a group for each `color`, its ranks in the order of (key, rank here). `name` is for messages.
  virtual std::unique_ptr<Channel> split(int color, int key, const std::string& name) = 0;

  // This rank cannot go on: whatever the others wait for ends with an error that says so, and why.
  virtual void fail(const Error& why) noexcept = 0;
};

}  // namespace ingot::comm
