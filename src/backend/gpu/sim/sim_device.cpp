#include "backend/gpu/sim/sim_device.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "backend/gpu/sim/host_stream.h"
#include "backend/gpu/sim/streams.h"
#include "base/error.h"
#include "base/machine.h"

namespace ingot::gpu::sim {
namespace {

class SimDevice : public GpuDevice {
 public:
  SimDevice(int width, Schedule schedule)
      : width_(width),
        schedule_(schedule),
        executor_(width),
        streams_(schedule,
                 [this](double waited_s) {
                   if (wait_check_) wait_check_(waited_s);
                 }),
        host_streams_{SimStream(*this, Stream::compute),       SimStream(*this, Stream::copy),
                      SimStream(*this, Stream::gather),        SimStream(*this, Stream::reduce),
                      SimStream(*this, Stream::from_previous), SimStream(*this, Stream::to_next),
                      SimStream(*this, Stream::from_next),     SimStream(*this, Stream::to_previous)} {}

  DeviceKind kind() const override { return DeviceKind::sim; }
  std::string name() const override { return fmt::format("sim{}", width_); }
  std::string arch() const override { return name(); }
  size_t memory_bytes() const override { return total_memory(); }
  size_t memory_available() const override { return available_memory(); }
  int warp_width() const override { return width_; }
  void* native_stream(Stream stream) const override {
    return const_cast<HostStream*>(static_cast<const HostStream*>(&host_streams_[static_cast<size_t>(stream)]));
  }
  void set_wait_check(std::function<void(double)> check) override { wait_check_ = std::move(check); }

  // Exactly this size, so that the address sanitizer catches kernels' accesses past the end.
  void* allocate(size_t bytes) override {
    refuse_to_record("memory is allocated");
    void* data = aligned(bytes);
    std::memset(data, 0, bytes);
    return data;
  }
  void release(void* data, size_t) noexcept override {
    finish();
    std::free(data);
  }
  void* allocate_pinned(size_t bytes) override {
    refuse_to_record("memory is allocated");
    auto* data = static_cast<std::byte*>(aligned(bytes));
    host_memory_[data] = bytes;
    return data;
  }
  void release_host(void* data, size_t) noexcept override {
    finish();
    host_memory_.erase(static_cast<std::byte*>(data));
    std::free(data);
  }

  void copy_from_host(void* destination, const void* source, size_t bytes) override {
    copy(Stream::compute, destination, source, bytes);
    streams_.run_to(streams_.mark(Stream::compute));
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    copy(Stream::compute, destination, source, bytes);
    streams_.run_to(streams_.mark(Stream::compute));
  }
  void copy_from_host_async(Stream stream, void* destination, const void* source, size_t bytes) override {
    check_host(source, bytes);
    copy(stream, destination, source, bytes);
  }
  void copy_to_host_async(Stream stream, void* destination, const void* source, size_t bytes) override {
    check_host(destination, bytes);
    if (bytes > 0) std::memset(destination, 0xff, bytes);
    copy(stream, destination, source, bytes);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<SimEvent>(*this); }
  void fill_zero(void* data, size_t bytes) override {
    refuse_to_record("memory is cleared");
    if (bytes > 0) streams_.add(Stream::compute, [=] { std::memset(data, 0, bytes); });
  }

  void launch(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_shared_bytes) override {
    const auto* begin = static_cast<const std::byte*>(args);
    start({kernel, {begin, begin + kernel.args_bytes}, grid, dynamic_shared_bytes, op()});
  }

  bool replays() const override { return true; }
  std::unique_ptr<RecordedGraph> record(FunctionRef<void()> work) override {
    refuse_to_record("a recording begins");
    std::vector<Launch> launches;
    struct Recording {
      std::vector<Launch>*& to;
      ~Recording() { to = nullptr; }
    } const recording{recording_};
    recording_ = &launches;
    work();
    return std::make_unique<SimReplay>(*this, std::move(launches));
  }

 private:
  struct Launch {
    KernelInfo kernel;
    std::vector<std::byte> args;
    Grid grid;
    size_t dynamic_shared_bytes;
    OpLabel op;
  };

  class SimStream : public HostStream {
   public:
    SimStream(SimDevice& device, Stream stream) : device_(device), stream_(stream) {}
    void add(std::function<bool()> work) override {
      device_.refuse_to_record("a library is called");
      device_.streams_.add_poll(stream_, std::move(work));
    }
    void finish() override { device_.streams_.run_to(device_.streams_.mark(stream_)); }
    bool prepare() override { return device_.streams_.prepare(stream_); }

   private:
    SimDevice& device_;
    Stream stream_;
  };

  class SimEvent : public Event {
   public:
    explicit SimEvent(SimDevice& device) : device_(device) {}
    void record(Stream stream) override {
      device_.refuse_to_record("an event is used");
      mark_ = device_.streams_.mark(stream);
    }
    void wait_on(Stream stream) override {
      device_.refuse_to_record("an event is used");
      device_.streams_.wait_on(stream, mark_);
    }
    bool done() override { return device_.streams_.step_to(mark_); }
    void wait() override {
      device_.refuse_to_record("the host waits");
      device_.streams_.run_to(mark_);
    }

   private:
    SimDevice& device_;
    Streams::Mark mark_;
  };

  class SimReplay : public RecordedGraph {
   public:
    SimReplay(SimDevice& device, std::vector<Launch> launches) : device_(device), launches_(std::move(launches)) {}
    void run() override {
      for (const Launch& launch : launches_) device_.start(launch);
    }

   private:
    SimDevice& device_;
    std::vector<Launch> launches_;
  };

  void* aligned(size_t bytes) const {
    void* data = nullptr;
    if (posix_memalign(&data, 64, bytes > 0 ? bytes : 1) != 0) {
      throw_error(ErrorKind::resource, "{} bytes of memory are needed, {} are available", bytes, memory_available());
    }
    return data;
  }

  void start(Launch launch) {
    if (recording_ != nullptr) return recording_->push_back(std::move(launch));
    streams_.add(Stream::compute, [this, launch = std::move(launch)] {
      try {
        executor_.run(launch.kernel, launch.args.data(), launch.grid, launch.dynamic_shared_bytes, schedule_);
      } catch (const Error& error) {
        throw_error(error.kind(), "{} on {}: {}", launch.op.text(), name(), error.message());
      }
    });
  }

  void copy(Stream stream, void* destination, const void* source, size_t bytes) {
    refuse_to_record("memory is copied");
    if (bytes == 0) return;
    streams_.add(stream, [=] { std::memcpy(destination, source, bytes); });
  }

  void check_host(const void* data, size_t bytes) const {
    const auto* begin = static_cast<const std::byte*>(data);
    const auto after = host_memory_.upper_bound(const_cast<std::byte*>(begin));
    if (bytes == 0) return;
    if (after != host_memory_.begin()) {
      const auto& [memory, size] = *std::prev(after);
      if (begin + bytes <= memory + size) return;
    }
    throw_error(ErrorKind::internal,
                "{}: an asynchronous copy of {} bytes uses host memory that is not from allocate_pinned", name(),
                bytes);
  }

  void refuse_to_record(const char* what) const {
    if (recording_ != nullptr) {
      throw_error(ErrorKind::internal, "{}: {} while {} is recorded", name(), what, op().text());
    }
  }

  // Runs all queued work before memory is freed. An error is reported by the next call that waits.
  void finish() noexcept {
    try {
      streams_.run_all();
    } catch (const Error&) {
      streams_.drop_all();
    }
  }

  const int width_;
  const Schedule schedule_;
  Executor executor_;
  Streams streams_;
  std::array<SimStream, num_streams> host_streams_;
  std::function<void(double)> wait_check_;
  std::map<std::byte*, size_t> host_memory_;
  std::vector<Launch>* recording_ = nullptr;
};

}  // namespace

std::unique_ptr<GpuDevice> make_device(int width, Schedule schedule) {
  if (width != 32 && width != 64)
    throw_error(ErrorKind::internal, "a warp of {} lanes is not supported, only 32 or 64", width);
  return std::make_unique<SimDevice>(width, schedule);
}

}  // namespace ingot::gpu::sim
