// A group of ranks, passed by value. In a group of one rank, collective operations return its own data at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/transport.h"

namespace ingot::comm {

template <class T>
constexpr Number number_of() {
  if constexpr (std::is_same_v<T, int32_t>) {
    return Number::i32;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return Number::i64;
  } else if constexpr (std::is_same_v<T, float>) {
    return Number::f32;
  } else {
    static_assert(std::is_same_v<T, double>, "numbers are int32_t, int64_t, float or double");
    return Number::f64;
  }
}

// A started operation that may overlap with other work. Its memory must not be touched until wait() has returned.
class Operation {
 public:
  Operation() = default;  // of a group of one: already done
  // wait() adds the seconds that it takes to `waited`.
  Operation(Transport::PendingOperation pending, std::shared_ptr<double> waited)
      : pending_(std::move(pending)), waited_(std::move(waited)) {}
  void wait();

 private:
  Transport::PendingOperation pending_;
  std::shared_ptr<double> waited_;
};

// The contracts are Transport's (comm/transport.h).
class Group {
 public:
  Group() = default;  // a group of one
  // Shared, because a group is a value whose copies are destroyed in any order.
  explicit Group(std::shared_ptr<Transport> transport)
      : transport_(std::move(transport)), waited_(std::make_shared<double>(0)) {}

  int rank() const { return transport_ ? transport_->rank() : 0; }
  int size() const { return transport_ ? transport_->size() : 1; }
  // Whether both are copies of one group, or groups of one.
  bool is(const Group& other) const { return transport_ == other.transport_; }
  // Seconds that this rank has spent waiting for operations of this group so far, including those of copies of it.
  double waited_s() const { return waited_ ? *waited_ : 0; }

  template <class T>
  Operation begin_all_reduce(std::span<T> values, ReduceOp combine) const {
    return alone() ? Operation()
                   : pending(transport_->all_reduce(values.data(), values.size(), number_of<T>(), combine));
  }
  template <class T>
  void all_reduce(std::span<T> values, ReduceOp combine) const {
    begin_all_reduce(values, combine).wait();
  }
  // All-reduce of one value.
  template <class T>
  T all_sum(T value) const {
    all_reduce(std::span(&value, 1), ReduceOp::sum);
    return value;
  }
  template <class T>
  T all_max(T value) const {
    all_reduce(std::span(&value, 1), ReduceOp::max);
    return value;
  }
  template <class T>
  Operation begin_reduce_scatter(std::span<T> own, std::span<const T> all, std::span<const size_t> counts,
                                 ReduceOp combine) const {
    if (alone()) return keep(std::as_writable_bytes(own), std::as_bytes(all));
    return pending(transport_->reduce_scatter(own.data(), all.data(), counts, number_of<T>(), combine));
  }
  Operation begin_all_gather(std::span<std::byte> all, std::span<const std::byte> own,
                             std::span<const size_t> bytes) const {
    return alone() ? keep(all, own) : pending(transport_->all_gather(all.data(), own.data(), bytes));
  }
  Operation begin_broadcast(std::span<std::byte> data, int root) const {
    return alone() ? Operation() : pending(transport_->broadcast(data.data(), data.size(), root));
  }
  // ErrorKind::internal in a group of one, which has no other rank.
  Operation begin_send(std::span<const std::byte> data, int to) const;
  Operation begin_receive(std::span<std::byte> data, int from) const;
  void barrier() const {
    if (!alone()) pending(transport_->barrier()).wait();
  }

  // Gathers the numbers of every rank, by rank; counts may differ between ranks.
  template <class T>
  std::vector<std::vector<T>> gather(std::span<const T> own) const {
    std::vector<std::vector<T>> all;
    for (const std::vector<std::byte>& bytes : gather_bytes(std::as_bytes(own))) {
      all.emplace_back(bytes.size() / sizeof(T));
      if (!bytes.empty()) std::memcpy(all.back().data(), bytes.data(), bytes.size());
    }
    return all;
  }
  // Every rank's value, by rank.
  template <class T>
  std::vector<T> gather_one(const T& own) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(size()));
    begin_all_gather(std::as_writable_bytes(std::span(all)), std::as_bytes(std::span(&own, 1)),
                     std::vector<size_t>(all.size(), sizeof own))
        .wait();
    return all;
  }
  // Every rank's text, by rank.
  std::vector<std::string> gather(const std::string& text) const;
  // Makes a group for each color, its ranks ordered by (key, rank in this group).
  Group split(int color, int key, const std::string& name) const;
  // Throws the error of a rank that is known to have failed.
  void require_running() const {
    if (!alone()) transport_->require_running();
  }
  void note(std::string activity) const {
    if (!alone()) transport_->note(std::move(activity));
  }
  std::string behind() const { return alone() ? std::string() : transport_->behind(); }
  void fail(const Error& why) const noexcept {
    if (!alone()) transport_->fail(why);
  }

 private:
  bool alone() const { return transport_ == nullptr || transport_->size() == 1; }
  std::vector<std::vector<std::byte>> gather_bytes(std::span<const std::byte> own) const;
  static Operation keep(std::span<std::byte> to, std::span<const std::byte> from);
  Operation pending(Transport::PendingOperation operation) const { return {std::move(operation), waited_}; }

  std::shared_ptr<Transport> transport_;
  std::shared_ptr<double> waited_;  // needs no lock: one thread at a time uses a transport
};

// Collective. Runs `work` (which may be empty) on a thread of its own, on the ranks that pass one. Meanwhile the
// calling threads of all ranks repeat a short all-reduce, so that no rank times out waiting for another. `work` may not
// use the group. When another rank fails, `wanted` becomes false and the call still waits for `work` to end. Errors:
// those of `work`, those of the group.
void run_while_synchronising(const Group& group, const std::function<void(const std::atomic<bool>& wanted)>& work);

}  // namespace ingot::comm
