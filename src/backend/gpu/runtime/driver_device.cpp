#include "backend/gpu/runtime/driver_device.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <thread>
#include <unordered_map>
#include <utility>

#include "backend/gpu/runtime/attention_library.h"
#include "backend/gpu/runtime/energy_meter.h"
#include "backend/gpu/runtime/matmul_library.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

namespace ingot::gpu {
namespace {

constexpr size_t default_dynamic_shared = size_t{48} << 10;

class DriverDevice : public GpuDevice {
 public:
  DriverDevice(std::shared_ptr<Driver> driver, int index, const DriverDeviceSettings& settings)
      : driver_(std::move(driver)), index_(index), settings_(settings) {
    const int count = driver_->num_devices();
    if (index < 0 || index >= count) {
      throw_hint(ErrorKind::unavailable, "`ingot devices` lists the available devices",
                 "device '{}' does not exist: there are {} devices of this kind", name(), count);
    }
    driver_->use(index_);
    if (settings_.code.empty()) {
      throw_hint(ErrorKind::unavailable, "build with ./run build --gpu all", "this build has no GPU code");
    }
    architecture_ = driver_->architecture(index_);
    const std::string_view first_file = settings_.code.front().file;
    modules_[first_file] = load_code(first_file);
    handle(Stream::compute);
    handle(Stream::copy);
  }
  DriverDevice(const DriverDevice&) = delete;
  DriverDevice& operator=(const DriverDevice&) = delete;
  ~DriverDevice() override {
    release(std::exchange(workspace_, nullptr), matmul_workspace_bytes);
    waited_.reset();
    if (!driver_responds()) return;
    attention_.reset();
    matmul_.reset();
    for (Driver::StreamHandle stream : streams_) {
      if (stream != nullptr) driver_->release_stream(stream);
    }
  }

  DeviceKind kind() const override { return driver_->kind(); }
  std::string name() const override { return fmt::format("{}:{}", ingot::name(kind()), index_); }
  std::string arch() const override { return architecture_; }
  size_t memory_bytes() const override { return driver_->memory_bytes(index_); }
  size_t memory_available() const override {
    driver_->use(index_);
    return driver_->free_bytes();
  }
  std::optional<double> joules() override {
    try {
      if (!std::exchange(meter_opened_, true)) {
        const auto find = kind() == DeviceKind::cuda ? find_nvml_meter : find_rocm_smi_meter;
        meter_ = find(driver_->pci_address(index_));
      }
      return meter_ == nullptr ? std::nullopt : std::optional(meter_->joules());
    } catch (const Error&) {
      return std::nullopt;  // a failing energy counter must not end the run
    }
  }
  int warp_width() const override { return architecture_.starts_with("gfx9") ? 64 : 32; }

  std::string address() const override { return driver_->pci_address(index_); }
  void* native_stream(Stream stream) const override { return handle(stream); }
  void* native_context() const override {
    driver_->use(index_);
    return driver_->context();
  }

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    refuse_to_record("memory is allocated");
    driver_->use(index_);
    try {
      return driver_->allocate(bytes);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::resource) throw;
      throw_hint(ErrorKind::resource, "use a smaller model, batch or sequence length, or a device with more memory",
                 "{} bytes of memory are needed, {} are available ({})", bytes, driver_->free_bytes(), error.message());
    }
  }
  void release(void* data, size_t) noexcept override {
    if (data == nullptr || !synchronized()) return;
    driver_->release(data);
  }
  void* allocate_pinned(size_t bytes) override {
    if (bytes == 0) return nullptr;
    refuse_to_record("memory is allocated");
    driver_->use(index_);
    return driver_->allocate_pinned(bytes);
  }
  void release_host(void* data, size_t) noexcept override {
    if (data == nullptr || !synchronized()) return;
    driver_->release_host(data);
  }

  void copy_from_host(void* destination, const void* source, size_t bytes) override {
    copy_from_host_async(Stream::compute, destination, source, bytes);
    if (bytes > 0) synchronize();
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    copy_to_host_async(Stream::compute, destination, source, bytes);
    if (bytes > 0) synchronize();
  }
  void copy_from_host_async(Stream stream, void* destination, const void* source, size_t bytes) override {
    if (bytes == 0) return;
    refuse_to_record("memory is copied");
    driver_->use(index_);
    with_async_errors([&] { driver_->copy_to_device(destination, source, bytes, handle(stream)); });
  }
  void copy_to_host_async(Stream stream, void* destination, const void* source, size_t bytes) override {
    if (bytes == 0) return;
    refuse_to_record("memory is copied");
    driver_->use(index_);
    with_async_errors([&] { driver_->copy_to_host(destination, source, bytes, handle(stream)); });
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<DriverEvent>(*this); }
  void fill_zero(void* data, size_t bytes) override {
    if (bytes == 0) return;
    refuse_to_record("memory is cleared");
    driver_->use(index_);
    with_async_errors([&] { driver_->fill_zero(data, bytes, handle(Stream::compute)); });
  }

  void set_wait_check(std::function<void(double)> check) override { wait_check_ = std::move(check); }

  void launch(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_shared_bytes) override {
    driver_->use(index_);
    Loaded& loaded = load(kernel);
    const int threads = kernel.block_threads(warp_width());
    try {
      if (dynamic_shared_bytes > loaded.shared_allowed) {
        driver_->set_max_dynamic_shared(loaded.function, dynamic_shared_bytes);
        loaded.shared_allowed = dynamic_shared_bytes;
      }
      driver_->launch(loaded.function, grid, threads, dynamic_shared_bytes, args, handle(Stream::compute));
    } catch (const Error& error) {
      throw_error(error.kind(), "{} on {}: kernel {}, grid {} x {} of {} threads: {}", op().text(), name(), kernel.name,
                  grid.x, grid.y, threads, error.message());
    }
    ++recorded_;
    last_op_ = op();
    last_kernel_ = kernel.name;
    if (settings_.wait_for_launches && !recording_) synchronize();
  }

  bool replays() const override { return settings_.replays.value_or(graphs_are_complete_); }
  std::unique_ptr<RecordedGraph> record(FunctionRef<void()> work) override {
    refuse_to_record("a recording begins");
    driver_->use(index_);
    driver_->begin_capture(handle(Stream::compute));
    recording_ = true;
    recorded_ = 0;
    std::exception_ptr failure;
    std::string refused;  // why the driver, or a library under capture, has not recorded all of the work
    try {
      work();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal) failure = std::current_exception();
      refused = error.message();
    } catch (...) {
      failure = std::current_exception();
    }
    recording_ = false;
    Driver::CapturedGraph captured;
    try {
      captured = driver_->end_capture(handle(Stream::compute));
    } catch (const Error& error) {
      if (refused.empty()) refused = error.message();
    }
    if (refused.empty() && captured.nodes < recorded_) {
      refused = fmt::format("the driver recorded {} of at least {} launches", captured.nodes, recorded_);
    }
    // A library's call may be several nodes, beside which a launch that is missing does not show. HIP has missed some.
    if (refused.empty() && captured.nodes > recorded_ && kind() == DeviceKind::hip && !settings_.replays) {
      refused = fmt::format("the driver recorded {} nodes for {} launches, so that a missing one would not show",
                            captured.nodes, recorded_);
    }
    if (!failure && refused.empty()) return std::make_unique<DriverReplay>(*this, captured.graph, op());
    if (captured.graph != nullptr) driver_->release_graph(captured.graph);
    if (failure) std::rethrow_exception(failure);
    if (settings_.replays) {
      throw_hint(ErrorKind::unavailable, "set INGOT_GRAPHS=0 to launch kernels without graphs",
                 "{}: {}; the last op was {}", name(), refused, op().text());
    }
    graphs_are_complete_ = false;
    Log(LogLevel::warning)
        .warning("{}: kernels are launched without graphs: {}; the last op was {}", name(), refused, op().text());
    return nullptr;
  }

  void run_in_library(const char* library, FunctionRef<void(void*)> call) override {
    driver_->use(index_);
    try {
      call(handle(Stream::compute));
    } catch (const Error& error) {
      throw_error(error.kind(), "{} on {}: {}", op().text(), name(), error.message());
    }
    ++recorded_;
    last_op_ = op();
    last_kernel_ = library;
    if (settings_.wait_for_launches && !recording_) synchronize();
  }

  MatmulLibrary& matmul_library() override {
    driver_->use(index_);
    if (matmul_ == nullptr) {
      std::unique_ptr<MatmulLibrary> opened = kind() == DeviceKind::cuda ? open_cublaslt() : open_hipblaslt();
      if (!opened->is_absent()) workspace_ = allocate(matmul_workspace_bytes);
      matmul_ = std::move(opened);
    }
    return *matmul_;
  }
  void* library_workspace() override { return workspace_; }
  AttentionLibrary& attention_library() override {
    if (kind() != DeviceKind::cuda) return GpuDevice::attention_library();
    driver_->use(index_);
    if (attention_ == nullptr) attention_ = open_cudnn();
    return *attention_;
  }

 private:
  struct Loaded {
    Driver::Function function = nullptr;
    size_t shared_allowed = default_dynamic_shared;
  };

  class DriverEvent : public Event {
   public:
    explicit DriverEvent(DriverDevice& device) : device_(device) {
      device_.driver_->use(device_.index_);
      event_ = device_.driver_->make_event();
    }
    DriverEvent(const DriverEvent&) = delete;
    DriverEvent& operator=(const DriverEvent&) = delete;
    ~DriverEvent() override {
      if (device_.driver_responds()) device_.driver_->release_event(event_);
    }
    void record(Stream stream) override {
      device_.refuse_to_record("an event is used");
      device_.driver_->use(device_.index_);
      device_.driver_->record(event_, device_.handle(stream));
    }
    void wait_on(Stream stream) override {
      device_.refuse_to_record("an event is used");
      device_.driver_->use(device_.index_);
      device_.driver_->wait_on(device_.handle(stream), event_);
    }
    bool done() override {
      bool done = false;
      device_.driver_->use(device_.index_);
      device_.with_async_errors([&] { done = device_.driver_->done(event_); });
      return done;
    }
    void wait() override {
      device_.refuse_to_record("the host waits");
      device_.driver_->use(device_.index_);
      if (device_.wait_check_) return device_.poll([&] { return done(); });
      device_.with_async_errors([&] { device_.driver_->wait(event_); });
    }

   private:
    DriverDevice& device_;
    Driver::EventHandle event_ = nullptr;
  };

  class DriverReplay : public RecordedGraph {
   public:
    DriverReplay(DriverDevice& device, Driver::GraphHandle graph, const OpLabel& last)
        : device_(device), graph_(graph), last_(last) {}
    DriverReplay(const DriverReplay&) = delete;
    DriverReplay& operator=(const DriverReplay&) = delete;
    ~DriverReplay() override {
      if (device_.synchronized()) device_.driver_->release_graph(graph_);
    }
    void run() override {
      device_.driver_->use(device_.index_);
      device_.with_async_errors([&] { device_.driver_->run(graph_, device_.handle(Stream::compute)); });
      device_.last_op_ = last_;
      device_.last_kernel_ = "a graph that ends with it";
    }

   private:
    DriverDevice& device_;
    Driver::GraphHandle graph_;
    OpLabel last_;
  };

  Driver::StreamHandle handle(Stream stream) const {
    Driver::StreamHandle& handle = streams_[static_cast<size_t>(stream)];
    if (handle == nullptr) handle = driver_->make_stream(carries_messages(stream));
    return handle;
  }

  void synchronize() {
    if (wait_check_) return wait_for(Stream::compute);
    with_async_errors([&] { driver_->synchronize(handle(Stream::compute)); });
  }
  void wait_for(Stream stream) {
    if (waited_ == nullptr) waited_ = make_event();
    waited_->record(stream);
    waited_->wait();
  }

  // Waits until `done` returns true.
  template <class Done>
  void poll(Done done) {
    for (const double begin = steady_seconds(); !done();) {
      const double waited = steady_seconds() - begin;
      if (waited < 1e-3) continue;  // most waits are short
      wait_check_(waited);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    wait_check_(0);
  }

  // Runs `call`, which may report an error of an earlier kernel; the error thrown then names the last launch.
  template <class Call>
  void with_async_errors(Call call) {
    try {
      call();
    } catch (const Error& error) {
      if (last_kernel_.empty()) throw_error(error.kind(), "{}: {}", name(), error.message());
      if (settings_.wait_for_launches) {
        throw_error(error.kind(), "{} on {}: kernel {}: {}", last_op_.text(), name(), last_kernel_, error.message());
      }
      throw_hint(error.kind(), "set INGOT_GPU_WAIT=1 to find out which op failed",
                 "{}: {}; the last op launched was {}, kernel {}", name(), error.message(), last_op_.text(),
                 last_kernel_);
    }
  }

  void refuse_to_record(const char* what) const {
    if (recording_) throw_error(ErrorKind::internal, "{}: {} while {} is recorded", name(), what, op().text());
  }

  // For functions that must not throw. False if the driver no longer responds; then there is nothing left to release.
  bool driver_responds() const noexcept {
    try {
      driver_->use(index_);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  bool synchronized() noexcept {
    try {
      driver_->use(index_);
      for (size_t i = 0; i < num_streams; ++i) {
        if (streams_[i] == nullptr) continue;
        if (wait_check_) {
          wait_for(static_cast<Stream>(i));
        } else {
          driver_->synchronize(streams_[i]);
        }
      }
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  Loaded& load(const KernelInfo& kernel) {
    const auto found = kernels_.find(kernel.name);
    if (found != kernels_.end()) return found->second;
    refuse_to_record("a kernel is loaded");
    Driver::Module& module = modules_[kernel.file];
    if (module == nullptr) module = load_code(kernel.file);
    return kernels_[kernel.name] = {driver_->function(module, kernel.name)};
  }

  // Loads the code object of a source file for this device's architecture.
  Driver::Module load_code(std::string_view file) {
    std::string available;
    for (const CodeObject& code : settings_.code) {
      const bool cuda = code.architecture == "cuda";
      if (code.file != file || cuda != (kind() == DeviceKind::cuda)) continue;
      available += fmt::format("{}{}", available.empty() ? "" : ", ", code.architecture);
      if (!runs_on(code, architecture_)) continue;
      try {
        return driver_->load(code.begin);
      } catch (const Error& error) {
        throw_error(error.kind(), "{} ({}, {}): the driver refuses the code of {} for {}: {}", name(),
                    driver_->device_name(index_), architecture_, file, code.architecture, error.message());
      }
    }
    throw_error(ErrorKind::unavailable, "{} ({}, {}): this build has no code of {} for this device, only for: {}",
                name(), driver_->device_name(index_), architecture_, file, available.empty() ? "none" : available);
  }

  std::shared_ptr<Driver> driver_;
  int index_;
  DriverDeviceSettings settings_;
  std::string architecture_;
  // Those of collective operations and messages are made when they are used.
  mutable std::array<Driver::StreamHandle, num_streams> streams_{};
  std::unordered_map<std::string_view, Driver::Module> modules_;
  std::unordered_map<std::string_view, Loaded> kernels_;
  bool recording_ = false;
  size_t recorded_ = 0;              // launches and calls of libraries since the last recording began
  bool graphs_are_complete_ = true;  // no recording lacked any of them
  std::function<void(double)> wait_check_;
  std::unique_ptr<Event> waited_;
  OpLabel last_op_;
  std::string last_kernel_;
  std::unique_ptr<MatmulLibrary> matmul_;
  void* workspace_ = nullptr;  // of `matmul_`
  std::unique_ptr<AttentionLibrary> attention_;
  bool meter_opened_ = false;
  std::unique_ptr<EnergyMeter> meter_;
};

}  // namespace

std::unique_ptr<GpuDevice> make_device(std::shared_ptr<Driver> driver, int index,
                                       const DriverDeviceSettings& settings) {
  return std::make_unique<DriverDevice>(std::move(driver), index, settings);
}

}  // namespace ingot::gpu
