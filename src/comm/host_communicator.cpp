#include "comm/host_communicator.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/combine.h"

namespace ingot::comm {

namespace {

size_t sum_of(std::span<const size_t> sizes) { return std::accumulate(sizes.begin(), sizes.end(), size_t{0}); }

size_t section_start(std::span<const size_t> sizes, int rank) { return sum_of(sizes.first(static_cast<size_t>(rank))); }

template <class Fn>
auto with_type(Number number, Fn fn) {
  switch (number) {
    case Number::i32: return fn.template operator()<int32_t>();
    case Number::i64: return fn.template operator()<int64_t>();
    case Number::f32: return fn.template operator()<float>();
    case Number::f64: return fn.template operator()<double>();
  }
  throw_error(ErrorKind::internal, "no such number");
}

Operation begin_all_reduce(const Group& ranks, void* data, size_t count, Number number, ReduceOp combine) {
  return with_type(number,
                   [&]<class T>() { return ranks.begin_all_reduce(std::span(static_cast<T*>(data), count), combine); });
}

Operation begin_reduce_scatter(const Group& ranks, void* data, std::span<const size_t> counts, Number number,
                               ReduceOp combine) {
  return with_type(number, [&]<class T>() {
    const std::span<T> all(static_cast<T*>(data), sum_of(counts));
    const size_t own = counts[static_cast<size_t>(ranks.rank())];
    return ranks.begin_reduce_scatter<T>(all.subspan(section_start(counts, ranks.rank()), own), all, counts, combine);
  });
}

Operation begin_all_gather(const Group& ranks, void* all, const void* own, std::span<const size_t> bytes) {
  return ranks.begin_all_gather({static_cast<std::byte*>(all), sum_of(bytes)},
                                {static_cast<const std::byte*>(own), bytes[static_cast<size_t>(ranks.rank())]}, bytes);
}

// Messages between all pairs of ranks that have sections for each other.
std::vector<Operation> begin_all_to_all(const Group& ranks, std::byte* out, std::span<const size_t> out_bytes,
                                        const std::byte* in, std::span<const size_t> in_bytes) {
  std::vector<Operation> operations;
  for (int distance = 0; distance < ranks.size(); ++distance) {
    const int to = (ranks.rank() + distance) % ranks.size();
    const int from = (ranks.rank() + ranks.size() - distance) % ranks.size();
    const std::span sent(in + section_start(in_bytes, to), in_bytes[static_cast<size_t>(to)]);
    const std::span received(out + section_start(out_bytes, from), out_bytes[static_cast<size_t>(from)]);
    if (distance == 0) {
      std::ranges::copy(sent, received.begin());
      continue;
    }
    if (!sent.empty()) operations.push_back(ranks.begin_send(sent, to));
    if (!received.empty()) operations.push_back(ranks.begin_receive(received, from));
  }
  return operations;
}

class HostCommunicator : public DeviceCommunicator {
 public:
  HostCommunicator(Device& device, Group ranks) : device_(device), ranks_(std::move(ranks)) {}
  std::string name() const override { return "host memory"; }
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }

 protected:
  Device& device_;
  const Group ranks_;
};

// Of a device whose memory the host can access.
class DirectCommunicator : public HostCommunicator {
 public:
  using HostCommunicator::HostCommunicator;
  size_t staging_bytes(size_t) const override { return 0; }
  Workspace make_workspace(size_t) override { return {}; }

  PendingOperation all_reduce(Workspace&, void* data, size_t count, Number number, ReduceOp combine) override {
    return pending(begin_all_reduce(ranks_, data, count, number, combine));
  }
  PendingOperation reduce_scatter(Workspace&, void* all, std::span<const size_t> counts, Number number,
                                  ReduceOp combine) override {
    return pending(begin_reduce_scatter(ranks_, all, counts, number, combine));
  }
  PendingOperation all_gather(Workspace&, void* all, const void* own, std::span<const size_t> bytes, Stream) override {
    return pending(begin_all_gather(ranks_, all, own, bytes));
  }
  PendingOperation all_to_all(Workspace&, void* out, std::span<const size_t> out_bytes, const void* in,
                              std::span<const size_t> in_bytes) override {
    return std::make_unique<Direct>(
        begin_all_to_all(ranks_, static_cast<std::byte*>(out), out_bytes, static_cast<const std::byte*>(in), in_bytes));
  }
  PendingOperation send(Workspace&, const void* data, size_t bytes, int to) override {
    return pending(ranks_.begin_send({static_cast<const std::byte*>(data), bytes}, to));
  }
  PendingOperation receive(Workspace&, void* data, size_t bytes, int from) override {
    return pending(ranks_.begin_receive({static_cast<std::byte*>(data), bytes}, from));
  }

 private:
  class Direct : public Operation {
   public:
    explicit Direct(std::vector<comm::Operation> operations) : operations_(std::move(operations)) {}
    void wait() override {
      for (comm::Operation& operation : operations_) operation.wait();
    }

   private:
    std::vector<comm::Operation> operations_;
  };
  static PendingOperation pending(comm::Operation operation) {
    std::vector<comm::Operation> operations;
    operations.push_back(std::move(operation));
    return std::make_unique<Direct>(std::move(operations));
  }
};

class StagedCommunicator : public HostCommunicator {
 public:
  using HostCommunicator::HostCommunicator;
  size_t staging_bytes(size_t bytes) const override { return bytes; }
  Workspace make_workspace(size_t bytes) override {
    return {PinnedBuffer(device_, bytes), device_.make_event(), device_.make_event()};
  }

  PendingOperation all_reduce(Workspace& workspace, void* data, size_t count, Number number,
                              ReduceOp combine) override {
    const size_t bytes = count * size_of(number);
    return reduce(workspace, data, {bytes, 0, bytes},
                  [=, this](void* staged) { return begin_all_reduce(ranks_, staged, count, number, combine); });
  }
  PendingOperation reduce_scatter(Workspace& workspace, void* all, std::span<const size_t> counts, Number number,
                                  ReduceOp combine) override {
    const size_t width = size_of(number), own = counts[static_cast<size_t>(ranks_.rank())];
    return reduce(workspace, all, {sum_of(counts) * width, section_start(counts, ranks_.rank()) * width, own * width},
                  [=, this, counts = std::vector(counts.begin(), counts.end())](void* staged) {
                    return begin_reduce_scatter(ranks_, staged, counts, number, combine);
                  });
  }
  PendingOperation all_gather(Workspace& workspace, void* all, const void* own, std::span<const size_t> bytes,
                              Stream after) override {
    workspace.done->wait();  // what used the staging memory before
    std::byte* staged = workspace.staging.data() + section_start(bytes, ranks_.rank());
    device_.copy_to_host_async(after, staged, own, bytes[static_cast<size_t>(ranks_.rank())]);
    workspace.ready->record(after);
    workspace.ready->wait();
    return std::make_unique<Staged>(*this, workspace, all, Result{sum_of(bytes), 0, sum_of(bytes)},
                                    begin_all_gather(ranks_, workspace.staging.data(), staged, bytes));
  }
  PendingOperation all_to_all(Workspace& workspace, void* out, std::span<const size_t> out_bytes, const void* in,
                              std::span<const size_t> in_bytes) override {
    workspace.done->wait();  // what used the staging memory before
    std::byte* received = workspace.staging.data();
    std::byte* sent = received + sum_of(out_bytes);
    device_.copy_to_host(sent, in, sum_of(in_bytes));
    for (comm::Operation& operation : begin_all_to_all(ranks_, received, out_bytes, sent, in_bytes)) operation.wait();
    return std::make_unique<Staged>(*this, workspace, out, Result{sum_of(out_bytes), 0, sum_of(out_bytes)},
                                    comm::Operation());
  }
  PendingOperation send(Workspace& workspace, const void* data, size_t bytes, int to) override {
    workspace.done->wait();  // what used the staging memory before
    device_.copy_to_host(workspace.staging.data(), data, bytes);
    return std::make_unique<Sent>(ranks_.begin_send({workspace.staging.data(), bytes}, to));
  }
  PendingOperation receive(Workspace& workspace, void* data, size_t bytes, int from) override {
    workspace.done->wait();  // what used the staging memory before
    return std::make_unique<Staged>(*this, workspace, data, Result{bytes, 0, bytes},
                                    ranks_.begin_receive({workspace.staging.data(), bytes}, from));
  }

 private:
  using Begin = std::function<comm::Operation(void* staged)>;
  // Bytes of an operation's memory, and those of them that it returns.
  struct Result {
    size_t all, begin, bytes;
  };

  class Staged : public Operation {
   public:
    // An operation that begins when its data have arrived on the host, after those that were made before it.
    Staged(StagedCommunicator& owner, Workspace& workspace, void* data, Result result, Begin begin)
        : owner_(owner),
          workspace_(workspace),
          data_(static_cast<std::byte*>(data)),
          result_(result),
          begin_(std::move(begin)) {
      owner_.waiting_.push_back(this);
    }
    Staged(StagedCommunicator& owner, Workspace& workspace, void* data, Result result, comm::Operation operation)
        : owner_(owner),
          workspace_(workspace),
          data_(static_cast<std::byte*>(data)),
          result_(result),
          operation_(std::move(operation)) {}
    Staged(const Staged&) = delete;
    Staged& operator=(const Staged&) = delete;
    ~Staged() override { std::erase(owner_.waiting_, this); }

    void begin() {
      workspace_.ready->wait();
      operation_ = begin_(workspace_.staging.data());
    }
    void wait() override {
      owner_.begin_all();
      operation_.wait();
      owner_.device_.copy_from_host_async(Stream::compute, data_ + result_.begin,
                                          workspace_.staging.data() + result_.begin, result_.bytes);
      workspace_.done->record(Stream::compute);
    }

   private:
    StagedCommunicator& owner_;
    Workspace& workspace_;
    std::byte* data_;
    Result result_;
    Begin begin_;
    comm::Operation operation_;
  };

  class Sent : public Operation {
   public:
    explicit Sent(comm::Operation operation) : operation_(std::move(operation)) {}
    void wait() override { operation_.wait(); }

   private:
    comm::Operation operation_;
  };

  PendingOperation reduce(Workspace& workspace, void* data, Result result, Begin begin) {
    workspace.done->wait();  // what used the staging memory before
    workspace.done->record(Stream::compute);
    workspace.done->wait_on(Stream::copy);
    device_.copy_to_host_async(Stream::copy, workspace.staging.data(), data, result.all);
    workspace.ready->record(Stream::copy);
    return std::make_unique<Staged>(*this, workspace, data, result, std::move(begin));
  }

  // Starts the pending operations, in order.
  void begin_all() {
    for (; !waiting_.empty(); waiting_.pop_front()) waiting_.front()->begin();
  }

  std::deque<Staged*> waiting_;
};

}  // namespace

std::shared_ptr<DeviceCommunicator> through_host(Device& device, const Group& ranks) {
  if (device.host_visible()) return std::make_shared<DirectCommunicator>(device, ranks);
  return std::make_shared<StagedCommunicator>(device, ranks);
}

}  // namespace ingot::comm
