// A driver that records its calls in order and fails on request. Device memory is host memory, and copies are
// synchronous.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backend/gpu/runtime/driver_device.h"
#include "base/error.h"

namespace ingot::gpu {

struct FakeDriverState {
  std::vector<std::string> calls;
  std::string architecture = "sm_90";
  // The call that fails: "load", "launch", "copy", "wait", "end_recording" or "devices". With "late" events stay
  // pending.
  std::string fails;
  int devices = 2;
  std::function<void(const std::string& kernel, const void* args)> compute;  // runs at each launch, if set
  size_t memory = 500;
  size_t forgotten = 0;  // launches that a graph lacks
  size_t further = 0;    // nodes that it has besides
  int alive = 0;         // number of streams, events, graphs and allocations that were not released
};

class FakeDriver : public Driver {
 public:
  FakeDriver(FakeDriverState& state, DeviceKind kind, std::span<const CodeObject> code)
      : state_(state), kind_(kind), code_(code) {}
  DeviceKind kind() const override { return kind_; }
  const std::string& library() const override { return library_; }
  std::string version() const override { return "1"; }
  int num_devices() override {
    fail("devices", "no permission");
    return state_.devices;
  }
  std::string device_name(int) override { return "FakeGPU"; }
  size_t memory_bytes(int) override { return 1000; }
  std::string architecture(int) override { return state_.architecture; }
  std::string pci_address(int device) override { return "0000:0" + std::to_string(device + 3) + ":00.0"; }
  void use(int device) override { used_ = device; }
  void* context() override { return &used_; }
  size_t free_bytes() override { return state_.memory; }
  void* allocate(size_t bytes) override {
    if (bytes > state_.memory) throw_error(ErrorKind::resource, "no memory");
    ++state_.alive;
    return std::calloc(1, bytes);
  }
  void release(void* data) noexcept override {
    --state_.alive;
    std::free(data);
  }
  void* allocate_pinned(size_t bytes) override { return allocate(bytes); }
  void release_host(void* data) noexcept override { release(data); }

  StreamHandle make_stream(bool urgent) override { return made(urgent ? "urgent stream" : "stream"); }
  void release_stream(StreamHandle stream) noexcept override { released(stream); }
  void synchronize(StreamHandle stream) override {
    fail("wait", "illegal address");
    note("wait for " + name(stream));
  }
  void copy_to_device(void* to, const void* from, size_t bytes, StreamHandle stream) override {
    copy(to, from, bytes, stream);
  }
  void copy_to_host(void* to, const void* from, size_t bytes, StreamHandle stream) override {
    copy(to, from, bytes, stream);
  }
  void fill_zero(void* data, size_t bytes, StreamHandle stream) override {
    note("clear " + std::to_string(bytes) + " in " + name(stream));
    std::memset(data, 0, bytes);
  }
  EventHandle make_event() override { return made("event"); }
  void release_event(EventHandle event) noexcept override { released(event); }
  void record(EventHandle event, StreamHandle stream) override {
    note("record " + name(event) + " in " + name(stream));
  }
  void wait_on(StreamHandle stream, EventHandle event) override {
    note("make " + name(stream) + " wait for " + name(event));
  }
  bool done(EventHandle) override { return state_.fails != "late"; }
  void wait(EventHandle event) override {
    fail("wait", "illegal address");
    note("wait for " + name(event));
  }

  Module load(const void* image) override {
    fail("load", "no binary");
    for (const CodeObject& code : code_) {
      if (code.begin == image) note("load " + std::string(code.file) + " " + std::string(code.architecture));
    }
    return const_cast<void*>(image);
  }
  Function function(Module, const char* name) override {
    note(std::string("function ") + name);
    return const_cast<char*>(name);
  }
  void set_max_dynamic_shared(Function, size_t bytes) override { note("shared " + std::to_string(bytes)); }
  void launch(Function function, Grid grid, int threads, size_t, const void* args, StreamHandle stream) override {
    fail("launch", "too many resources");
    ++captured_;
    note("launch " + std::string(static_cast<const char*>(function)) + " " + std::to_string(grid.x) + " " +
         std::to_string(threads) + " " + std::to_string(*static_cast<const int*>(args)) + " on " +
         std::to_string(used_) + " in " + name(stream));
    if (state_.compute) state_.compute(static_cast<const char*>(function), args);
  }

  void begin_capture(StreamHandle stream) override {
    note("record " + name(stream));
    captured_ = 0;
  }
  CapturedGraph end_capture(StreamHandle) override {
    fail("end_recording", "not permitted");
    return {made("graph"), captured_ - std::min(captured_, state_.forgotten) + state_.further};
  }
  void run(GraphHandle graph, StreamHandle stream) override { note("run " + name(graph) + " in " + name(stream)); }
  void release_graph(GraphHandle graph) noexcept override { released(graph); }

 private:
  // Handles are names: "stream0", "stream1", "event0", ...
  static std::string name(void* handle) { return *static_cast<std::string*>(handle); }
  void* made(const std::string& kind) {
    ++state_.alive;
    int number = 0;
    for (const auto& other : names_) number += other->starts_with(kind) ? 1 : 0;
    names_.push_back(std::make_unique<std::string>(kind + std::to_string(number)));
    return names_.back().get();
  }
  void released(void*) noexcept { --state_.alive; }
  void note(std::string call) { state_.calls.push_back(std::move(call)); }
  void fail(const std::string& call, const char* why) const {
    if (state_.fails == call) throw_error(ErrorKind::unavailable, "{}", why);
  }
  void copy(void* to, const void* from, size_t bytes, StreamHandle stream) {
    fail("copy", "illegal address");
    note("copy " + std::to_string(bytes) + " in " + name(stream));
    std::memcpy(to, from, bytes);
  }

  FakeDriverState& state_;
  DeviceKind kind_;
  std::span<const CodeObject> code_;
  std::string library_ = "libfake.so";
  std::vector<std::unique_ptr<std::string>> names_;
  size_t captured_ = 0;  // launches since the last capture began
  int used_ = -1;
};

}  // namespace ingot::gpu
