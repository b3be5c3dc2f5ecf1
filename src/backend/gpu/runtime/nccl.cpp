// The functions and numbers are those of NVIDIA's nccl.h (2.18 and later) and ROCm's rccl.h, declared here so that no
// header of theirs is needed.
#include "backend/gpu/runtime/nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <exception>
#include <future>
#include <numeric>
#include <thread>
#include <utility>

#include "backend/gpu/runtime/library_folders.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/threads.h"
#include "comm/combine.h"
#include "comm/failure.h"

namespace ingot::gpu {

namespace {

using Result = int;          // ncclResult_t
using Communicator = void*;  // ncclComm_t
using StreamHandle = void*;  // cudaStream_t, hipStream_t
constexpr Result success = 0;
constexpr Result in_progress = 7;
constexpr int bytes_type = 1;  // ncclUint8
constexpr int oldest_version = 21800;

struct UniqueId {  // ncclUniqueId
  std::array<char, 128> bytes;
};

// ncclConfig_t of version 2.18, which later libraries accept.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = oldest_version;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // INT_MIN: not set
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int unused = INT_MIN;
};

int type_of(comm::Number number) {  // ncclDataType_t
  switch (number) {
    case comm::Number::i32: return 2;
    case comm::Number::i64: return 4;
    case comm::Number::f32: return 7;
    case comm::Number::f64: return 8;
  }
  throw_error(ErrorKind::internal, "no such number");
}

int op_of(comm::ReduceOp op) { return op == comm::ReduceOp::sum ? 0 : 2; }  // ncclRedOp_t

LibraryNames names_of(DeviceKind kind) {
  if (kind == DeviceKind::hip) return {"INGOT_RCCL_LIBRARY", {"librccl.so.1", "librccl.so"}, amd_folders};
  return {"INGOT_NCCL_LIBRARY", {"libnccl.so.2"}, nvidia_folders};
}

// 2.28.3 is 22803.
std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

class CollectiveLibrary {
 public:
  CollectiveLibrary(std::unique_ptr<SharedLibrary> library, DeviceKind kind) : library_(std::move(library)) {
    name = kind == DeviceKind::hip ? "RCCL" : "NCCL";
    library_->bind(GetVersion, "ncclGetVersion");
    library_->bind(GetUniqueId, "ncclGetUniqueId");
    library_->bind(GetErrorString, "ncclGetErrorString");
    library_->bind(GetLastError, "ncclGetLastError");
    library_->bind(CommInitRankConfig, "ncclCommInitRankConfig");
    library_->bind(CommFinalize, "ncclCommFinalize");
    library_->bind(CommDestroy, "ncclCommDestroy");
    library_->bind(CommAbort, "ncclCommAbort");
    library_->bind(CommGetAsyncError, "ncclCommGetAsyncError");
    library_->bind(AllReduce, "ncclAllReduce");
    library_->bind(ReduceScatter, "ncclReduceScatter");
    library_->bind(AllGather, "ncclAllGather");
    library_->bind(Reduce, "ncclReduce");
    library_->bind(Broadcast, "ncclBroadcast");
    library_->bind(Send, "ncclSend");
    library_->bind(Recv, "ncclRecv");
    library_->bind(GroupStart, "ncclGroupStart");
    library_->bind(GroupEnd, "ncclGroupEnd");
    if (GetVersion(&version) != success) throw_error(ErrorKind::unavailable, "{} has no version", name);
    if (version < oldest_version) {
      throw_error(ErrorKind::unavailable, "{} {} is too old, {} is needed ({})", name, version_text(version),
                  version_text(oldest_version), library_->path());
    }
    const bool simulates = library_->has("ingot_simulates_nccl");
    if (simulates != (kind == DeviceKind::sim)) {
      throw_error(ErrorKind::unavailable, "{} works on {} devices only", library_->path(),
                  simulates ? "simulated" : "real");
    }
  }
  const std::string& path() const { return library_->path(); }

  std::string name;
  int version = 0;
  Result (*GetVersion)(int*) = nullptr;
  Result (*GetUniqueId)(UniqueId*) = nullptr;
  const char* (*GetErrorString)(Result) = nullptr;
  const char* (*GetLastError)(Communicator) = nullptr;
  Result (*CommInitRankConfig)(Communicator*, int ranks, UniqueId, int rank, Config*) = nullptr;
  Result (*CommFinalize)(Communicator) = nullptr;
  Result (*CommDestroy)(Communicator) = nullptr;
  Result (*CommAbort)(Communicator) = nullptr;
  Result (*CommGetAsyncError)(Communicator, Result*) = nullptr;
  Result (*AllReduce)(const void* from, void* to, size_t count, int type, int op, Communicator, StreamHandle) = nullptr;
  Result (*ReduceScatter)(const void* from, void* to, size_t count, int type, int op, Communicator,
                          StreamHandle) = nullptr;
  Result (*AllGather)(const void* from, void* to, size_t count, int type, Communicator, StreamHandle) = nullptr;
  Result (*Reduce)(const void* from, void* to, size_t count, int type, int op, int root, Communicator,
                   StreamHandle) = nullptr;
  Result (*Broadcast)(const void* from, void* to, size_t count, int type, int root, Communicator,
                      StreamHandle) = nullptr;
  Result (*Send)(const void* from, size_t count, int type, int to, Communicator, StreamHandle) = nullptr;
  Result (*Recv)(void* to, size_t count, int type, int from, Communicator, StreamHandle) = nullptr;
  Result (*GroupStart)() = nullptr;
  Result (*GroupEnd)() = nullptr;

 private:
  std::unique_ptr<SharedLibrary> library_;
};

namespace {

class NcclCommunicator : public comm::DeviceCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<const CollectiveLibrary> library, GpuDevice& device, comm::Group ranks,
                   NcclSettings settings)
      : library_(std::move(library)), device_(device), ranks_(std::move(ranks)), settings_(std::move(settings)) {
    UniqueId id{};
    if (ranks_.rank() == 0) require("a communicator's id", library_->GetUniqueId(&id));
    ranks_.begin_broadcast(std::as_writable_bytes(std::span(id.bytes)), 0).wait();
    make_current();
    Config config;
    if (settings_.max_blocks > 0) config.max_ctas = settings_.max_blocks;
    ranks_.note(last_);
    const Result result = library_->CommInitRankConfig(&communicator_, ranks_.size(), id, ranks_.rank(), &config);
    try {
      if (result != in_progress) require("a communicator", result);
      finish_call("the start");
    } catch (const Error&) {
      end();
      throw;
    }
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override {
    if (communicator_ == nullptr) return;
    if (std::uncaught_exceptions() == exceptions_ && finalized()) {
      library_->CommDestroy(communicator_);
    } else {
      end();
    }
  }

  std::string name() const override { return name_of(*library_); }
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  size_t staging_bytes(size_t) const override { return 0; }
  Workspace make_workspace(size_t) override { return {{}, device_.make_event(), device_.make_event()}; }

  PendingOperation all_reduce(Workspace& workspace, void* data, size_t count, comm::Number number,
                              comm::ReduceOp combine) override {
    return run(workspace, Stream::compute, "all_reduce", count, [&](StreamHandle stream) {
      enqueue("an all-reduce",
              library_->AllReduce(data, data, count, type_of(number), op_of(combine), communicator_, stream));
    });
  }

  PendingOperation reduce_scatter(Workspace& workspace, void* all, std::span<const size_t> counts, comm::Number number,
                                  comm::ReduceOp combine) override {
    const int type = type_of(number), op = op_of(combine);
    const size_t width = size_of(number);
    return run(workspace, Stream::compute, "reduce_scatter", sum_of(counts), [&](StreamHandle stream) {
      auto* at = static_cast<std::byte*>(all);
      if (const size_t count = counts[0]; std::ranges::all_of(counts, [&](size_t each) { return each == count; })) {
        std::byte* own = at + static_cast<size_t>(rank()) * count * width;
        enqueue("a reduce-scatter", library_->ReduceScatter(at, own, count, type, op, communicator_, stream));
        return;
      }
      each_section(counts, width, at, [&](std::byte* section, size_t count, int root) {
        enqueue("a reduction", library_->Reduce(section, section, count, type, op, root, communicator_, stream));
      });
    });
  }

  PendingOperation all_gather(Workspace& workspace, void* all, const void* own, std::span<const size_t> bytes,
                              Stream after) override {
    return run(workspace, after, "all_gather", sum_of(bytes), [&](StreamHandle stream) {
      if (const size_t count = bytes[0]; std::ranges::all_of(bytes, [&](size_t each) { return each == count; })) {
        enqueue("an all-gather", library_->AllGather(own, all, count, bytes_type, communicator_, stream));
        return;
      }
      each_section(bytes, 1, static_cast<std::byte*>(all), [&](std::byte* section, size_t count, int root) {
        const void* from = root == rank() ? own : section;
        enqueue("a broadcast", library_->Broadcast(from, section, count, bytes_type, root, communicator_, stream));
      });
    });
  }

  PendingOperation all_to_all(Workspace& workspace, void* out, std::span<const size_t> out_bytes, const void* in,
                              std::span<const size_t> in_bytes) override {
    return run(
        workspace, Stream::compute, "all_to_all", sum_of(in_bytes) + sum_of(out_bytes), [&](StreamHandle stream) {
          auto* to = static_cast<std::byte*>(out);
          const auto* from = static_cast<const std::byte*>(in);
          begin_group();
          for (int peer = 0; peer < size(); ++peer) {
            const size_t sent = in_bytes[static_cast<size_t>(peer)], received = out_bytes[static_cast<size_t>(peer)];
            if (sent > 0) enqueue("a send", library_->Send(from, sent, bytes_type, peer, communicator_, stream));
            if (received > 0)
              enqueue("a receive", library_->Recv(to, received, bytes_type, peer, communicator_, stream));
            from += sent;
            to += received;
          }
          end_group();
        });
  }

  PendingOperation send(Workspace& workspace, const void* data, size_t bytes, int to) override {
    return run(workspace, Stream::compute, "message", bytes, [&](StreamHandle stream) {
      enqueue("a send", library_->Send(data, bytes, bytes_type, to, communicator_, stream));
    });
  }

  PendingOperation receive(Workspace& workspace, void* data, size_t bytes, int from) override {
    return run(workspace, Stream::compute, "message", bytes, [&](StreamHandle stream) {
      enqueue("a receive", library_->Recv(data, bytes, bytes_type, from, communicator_, stream));
    });
  }

  void check(double waited_s) override {
    if (communicator_ == nullptr) return;
    ranks_.require_running();
    Result state = success;
    require("an operation", library_->CommGetAsyncError(communicator_, &state));
    if (state != in_progress) require("an operation", state);
    if (waited_s <= settings_.timeout_s) return;
    fail(Error(ErrorKind::unavailable,
               fmt::format("rank {} of '{}' has waited {} s for {}, after {}: {}", rank(), settings_.group,
                           settings_.timeout_s, device_.name(), last_, ranks_.behind()),
               comm::timeout_hint));
  }

  // Aborts. The library joins its threads, which may wait for a rank that is stopped: not longer than `patience`.
  void end() noexcept override {
    if (communicator_ == nullptr) return;
    constexpr std::chrono::seconds patience(5);
    try {
      auto ended = std::make_shared<std::promise<void>>();
      std::future<void> end = ended->get_future();
      start_thread("the end of a communicator", [library = library_, communicator = communicator_, ended] {
        library->CommAbort(communicator);
        ended->set_value();
      }).detach();
      end.wait_for(patience);
    } catch (const Error&) {
      library_->CommAbort(communicator_);
    }
    communicator_ = nullptr;
  }

 private:
  class Enqueued : public Operation {
   public:
    Enqueued(NcclCommunicator& owner, Event* done) : owner_(owner), done_(done) {}
    void wait() override {
      owner_.check(0);
      owner_.require_unbroken();
      if (done_ != nullptr) done_->wait_on(Stream::compute);
    }

   private:
    NcclCommunicator& owner_;
    Event* done_;
  };

  static size_t sum_of(std::span<const size_t> sizes) { return std::accumulate(sizes.begin(), sizes.end(), size_t{0}); }

  // Starts `body` in the communicator's stream after the work in `after`.
  template <class Body>
  PendingOperation run(Workspace& workspace, Stream after, const char* name, size_t count, Body body) {
    require_unbroken();
    ++operations_;
    last_ = fmt::format("operation {} of '{}', {} of {}", operations_, settings_.group, name, count);
    ranks_.note(last_);
    if (after != settings_.stream) {
      workspace.ready->record(after);
      workspace.ready->wait_on(settings_.stream);
    }
    make_current();
    if (count > 0) body(device_.native_stream(settings_.stream));
    workspace.done->record(settings_.stream);
    return std::make_unique<Enqueued>(*this, settings_.stream == Stream::compute ? nullptr : workspace.done.get());
  }

  // Calls body(section, count, rank) for the ranks' sections that are not empty, in one group.
  template <class Body>
  void each_section(std::span<const size_t> counts, size_t width, std::byte* section, Body body) {
    begin_group();
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      if (counts[rank] > 0) body(section, counts[rank], static_cast<int>(rank));
      section += counts[rank] * width;
    }
    end_group();
  }

  // What is enqueued between them becomes one operation.
  void begin_group() {
    require("a group of operations", library_->GroupStart());
    grouping_ = true;
  }
  void end_group() {
    grouping_ = false;
    enqueue("a group of operations", library_->GroupEnd());
  }

  void require_unbroken() const {
    if (communicator_ == nullptr)
      throw_error(ErrorKind::unavailable, "the ranks of '{}' have lost each other", settings_.group);
  }

  void make_current() const { device_.native_context(); }

  void require(const char* what, Result result) {
    if (result == success) return;
    // Another rank's end looks like an error here. Its report, which says why, comes within that.
    constexpr double patience_s = 1;
    for (const double begin = steady_seconds(); steady_seconds() - begin < patience_s; pause(begin))
      ranks_.require_running();
    const char* more = library_->GetLastError(communicator_);
    fail(Error(ErrorKind::unavailable,
               fmt::format("{} on rank {} of '{}': {}: {}{}{}", name(), rank(), settings_.group, what,
                           library_->GetErrorString(result), more != nullptr && *more != 0 ? ": " : "",
                           more != nullptr ? more : ""),
               "NCCL_DEBUG=WARN makes the library say more"));
  }

  // The other ranks are notified first: aborting may wait for them.
  [[noreturn]] void fail(const Error& error) {
    ranks_.fail(error);
    if (std::exchange(grouping_, false)) library_->GroupEnd();
    end();
    throw Error(error);
  }

  // The library's calls return before they have done what may block, like connecting to other ranks.
  void enqueue(const char* what, Result result) {
    if (result != in_progress) return require(what, result);
    if (!grouping_) finish_call(what);
  }
  static void pause(double begin) {
    if (steady_seconds() - begin < 1e-4) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  void finish_call(const char* what) {
    const double begin = steady_seconds();
    for (Result state = in_progress;; pause(begin)) {
      require(what, library_->CommGetAsyncError(communicator_, &state));
      if (state == success) return;
      if (state != in_progress) require(what, state);
      ranks_.require_running();
      if (steady_seconds() - begin > settings_.timeout_s) {
        fail(Error(ErrorKind::unavailable,
                   fmt::format("rank {} of '{}' has waited {} s for {} of {}: {}", rank(), settings_.group,
                               settings_.timeout_s, what, name(), ranks_.behind()),
                   comm::timeout_hint));
      }
    }
  }

  // Whether all ranks have ended in time.
  bool finalized() noexcept {
    try {
      make_current();
      const Result result = library_->CommFinalize(communicator_);
      if (result != success && result != in_progress) return false;
      for (const double begin = steady_seconds(); steady_seconds() - begin < settings_.timeout_s; pause(begin)) {
        ranks_.require_running();
        Result state = success;
        if (library_->CommGetAsyncError(communicator_, &state) != success) return false;
        if (state != in_progress) return state == success;
      }
      return false;
    } catch (const Error&) {
      return false;
    }
  }

  std::shared_ptr<const CollectiveLibrary> library_;
  GpuDevice& device_;
  comm::Group ranks_;
  NcclSettings settings_;
  Communicator communicator_ = nullptr;
  bool grouping_ = false;
  int64_t operations_ = 0;
  std::string last_ = fmt::format("the start of '{}'", settings_.group);
  const int exceptions_ = std::uncaught_exceptions();
};

LibraryInfo info_of(DeviceKind kind) {
  LibraryInfo info{.name = kind == DeviceKind::hip ? "RCCL" : "NCCL"};
  try {
    const std::shared_ptr<const CollectiveLibrary> library = open_collective_library(kind);
    info.path = library->path();
    info.version = version_text(library->version);
  } catch (const Error& error) {
    info.reason = error.message();
  }
  return info;
}

}  // namespace

std::shared_ptr<const CollectiveLibrary> open_collective_library(DeviceKind kind) {
  std::shared_ptr<const CollectiveLibrary> opened;
  const std::string reason = try_libraries(names_of(kind), [&](std::unique_ptr<SharedLibrary> library) {
    opened = std::make_shared<CollectiveLibrary>(std::move(library), kind);
  });
  if (opened == nullptr) throw_error(ErrorKind::unavailable, "{}", reason);
  return opened;
}

std::string name_of(const CollectiveLibrary& library) {
  return fmt::format("{} {}", library.name, version_text(library.version));
}

LibraryInfo info_of_nccl() { return info_of(DeviceKind::cuda); }
LibraryInfo info_of_rccl() { return info_of(DeviceKind::hip); }

std::shared_ptr<comm::DeviceCommunicator> make_nccl_communicator(std::shared_ptr<const CollectiveLibrary> library,
                                                                 GpuDevice& device, comm::Group ranks,
                                                                 NcclSettings settings) {
  return std::make_shared<NcclCommunicator>(std::move(library), device, std::move(ranks), std::move(settings));
}

}  // namespace ingot::gpu
