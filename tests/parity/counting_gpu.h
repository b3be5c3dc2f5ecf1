// A simulated GPU that counts allocations, launches and copies. On request it refuses large allocations.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/gpu/sim/sim_device.h"
#include "base/error.h"

namespace ingot {

class CountingGpu : public gpu::GpuDevice {
 public:
  explicit CountingGpu(int width, gpu::sim::Schedule schedule = gpu::sim::Schedule::forward)
      : inner_(gpu::sim::make_device(width, schedule)) {}

  DeviceKind kind() const override { return inner_->kind(); }
  std::string name() const override { return inner_->name(); }
  std::string arch() const override { return inner_->arch(); }
  size_t memory_bytes() const override { return inner_->memory_bytes(); }
  size_t memory_available() const override { return inner_->memory_available(); }
  int warp_width() const override { return inner_->warp_width(); }
  void* allocate(size_t bytes) override {
    if (bytes > max_bytes) throw_error(ErrorKind::resource, "{} bytes are more than {}", bytes, max_bytes);
    ++allocations;
    return inner_->allocate(bytes);
  }
  void release(void* data, size_t bytes) noexcept override { inner_->release(data, bytes); }
  void* allocate_pinned(size_t bytes) override {
    ++allocations;
    return inner_->allocate_pinned(bytes);
  }
  void release_host(void* data, size_t bytes) noexcept override { inner_->release_host(data, bytes); }
  void copy_from_host(void* to, const void* from, size_t bytes) override {
    ++waiting_copies;
    inner_->copy_from_host(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    ++waiting_copies;
    inner_->copy_to_host(to, from, bytes);
  }
  void copy_from_host_async(Stream stream, void* to, const void* from, size_t bytes) override {
    inner_->copy_from_host_async(stream, to, from, bytes);
  }
  void copy_to_host_async(Stream stream, void* to, const void* from, size_t bytes) override {
    ++copies_to_host;
    inner_->copy_to_host_async(stream, to, from, bytes);
  }
  void fill_zero(void* data, size_t bytes) override { inner_->fill_zero(data, bytes); }
  std::unique_ptr<Event> make_event() override {
    ++allocations;
    return std::make_unique<CountingEvent>(*this, inner_->make_event());
  }
  void launch(const gpu::KernelInfo& kernel, const void* args, gpu::Grid grid, size_t dynamic_shared_bytes) override {
    ++launches;
    if (kernels != nullptr) kernels->push_back(kernel.name);
    inner_->launch(kernel, args, grid, dynamic_shared_bytes);
  }
  bool replays() const override { return replaying; }
  std::unique_ptr<RecordedGraph> record(FunctionRef<void()> work) override {
    ++recordings;
    return inner_->record(work);
  }
  void set_current_op(const char* op, std::span<const Operand> operands) override {
    inner_->set_current_op(op, operands);
  }

  static constexpr size_t no_limit = std::numeric_limits<size_t>::max();
  size_t max_bytes = no_limit;  // of an allocation of device memory
  bool replaying = true;
  int allocations = 0;     // of device memory, pinned memory and events
  int waiting_copies = 0;  // copies that block the host
  int copies_to_host = 0;  // those that do not
  int launches = 0;
  // If not null, the names of launched kernels are added, and "host waits" where the host waits for an event.
  std::vector<std::string>* kernels = nullptr;
  int recordings = 0;

 private:
  class CountingEvent : public Event {
   public:
    CountingEvent(CountingGpu& device, std::unique_ptr<Event> inner) : device_(device), inner_(std::move(inner)) {}
    void record(Stream stream) override { inner_->record(stream); }
    void wait_on(Stream stream) override { inner_->wait_on(stream); }
    bool done() override { return inner_->done(); }
    void wait() override {
      if (device_.kernels != nullptr) device_.kernels->emplace_back("host waits");
      inner_->wait();
    }

   private:
    CountingGpu& device_;
    std::unique_ptr<Event> inner_;
  };

  std::unique_ptr<gpu::GpuDevice> inner_;
};

}  // namespace ingot
