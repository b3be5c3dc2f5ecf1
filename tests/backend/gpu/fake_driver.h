// A driver that only keeps books: what it was asked to do, in order, and what fails. Memory is the host's; copies are
// done at once.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backend/gpu/runtime/driver_device.h"
#include "base/error.h"

namespace ingot::gpu {

struct Books {
  std::vector<std::string> calls;
  std::string runs = "cuda";  // the architecture whose code it takes
  std::string fails;          // the call that fails: "launch", "copy", "wait", "end_capture", "devices"
  int devices = 2;
  std::function<void(const std::string& kernel, const void* args)> compute;  // what launches do; nothing if absent
  size_t memory = 500;
  int alive = 0;  // streams, events, graphs and memory that were made and not released
};

class FakeDriver : public Driver {
 public:
  FakeDriver(Books& books, DeviceKind kind, std::span<const CodeObject> code)
      : books_(books), kind_(kind), code_(code) {}
  DeviceKind kind() const override { return kind_; }
  const std::string& library() const override { return library_; }
  std::string version() const override { return "1"; }
  int num_devices() override {
    fail("devices", "no permission");
    return books_.devices;
  }
  std::string device_name(int) override { return "Pretender"; }
  size_t memory_bytes(int) override { return 1000; }
  std::string architecture(int) override { return kind_ == DeviceKind::cuda ? "sm_90" : ""; }
  std::string pci_address(int device) override { return "0000:0" + std::to_string(device + 3) + ":00.0"; }
  void use(int device) override { used_ = device; }
  void* context() override { return &used_; }
  size_t free_bytes() override { return books_.memory; }
  void* allocate(size_t bytes) override {
    if (bytes > books_.memory) throw_error(ErrorKind::resource, "no memory");
    ++books_.alive;
    return std::calloc(1, bytes);
  }
  void release(void* data) noexcept override {
    --books_.alive;
    std::free(data);
  }
  void* allocate_pinned(size_t bytes) override { return allocate(bytes); }
  void release_host(void* data) noexcept override { release(data); }

  StreamHandle make_stream() override { return made("stream"); }
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
  EventHandle make_event() override { return made("event"); }
  void release_event(EventHandle event) noexcept override { released(event); }
  void record(EventHandle event, StreamHandle stream) override {
    note("record " + name(event) + " in " + name(stream));
  }
  void wait_on(StreamHandle stream, EventHandle event) override {
    note("hold " + name(stream) + " for " + name(event));
  }
  bool done(EventHandle) override { return books_.fails != "late"; }
  void wait(EventHandle event) override {
    fail("wait", "illegal address");
    note("wait for " + name(event));
  }

  Module load(const void* image) override {
    for (const CodeObject& code : code_) {
      if (code.begin != image || code.architecture != books_.runs) continue;
      note("load " + std::string(code.file));
      return const_cast<unsigned char*>(code.begin);
    }
    return nullptr;
  }
  Function function(Module, const char* name) override {
    note(std::string("function ") + name);
    return const_cast<char*>(name);
  }
  void set_max_dynamic_shared(Function, size_t bytes) override { note("shared " + std::to_string(bytes)); }
  void launch(Function function, Grid grid, int threads, size_t, const void* args, StreamHandle stream) override {
    fail("launch", "too many resources");
    note("launch " + std::string(static_cast<const char*>(function)) + " " + std::to_string(grid.x) + " " +
         std::to_string(threads) + " " + std::to_string(*static_cast<const int*>(args)) + " on " +
         std::to_string(used_) + " in " + name(stream));
    if (books_.compute) books_.compute(static_cast<const char*>(function), args);
  }

  void begin_capture(StreamHandle stream) override { note("record " + name(stream)); }
  GraphHandle end_capture(StreamHandle) override {
    fail("end_recording", "not permitted");
    return made("graph");
  }
  void run(GraphHandle graph, StreamHandle stream) override { note("run " + name(graph) + " in " + name(stream)); }
  void release_graph(GraphHandle graph) noexcept override { released(graph); }

 private:
  // Handles are names: "stream0", "stream1", "event0", ...
  static std::string name(void* handle) { return *static_cast<std::string*>(handle); }
  void* made(const std::string& kind) {
    ++books_.alive;
    int number = 0;
    for (const auto& other : names_) number += other->starts_with(kind) ? 1 : 0;
    names_.push_back(std::make_unique<std::string>(kind + std::to_string(number)));
    return names_.back().get();
  }
  void released(void*) noexcept { --books_.alive; }
  void note(std::string call) { books_.calls.push_back(std::move(call)); }
  void fail(const std::string& call, const char* why) const {
    if (books_.fails == call) throw_error(ErrorKind::unavailable, "{}", why);
  }
  void copy(void* to, const void* from, size_t bytes, StreamHandle stream) {
    fail("copy", "illegal address");
    note("copy " + std::to_string(bytes) + " in " + name(stream));
    std::memcpy(to, from, bytes);
  }

  Books& books_;
  DeviceKind kind_;
  std::span<const CodeObject> code_;
  std::string library_ = "libfake.so";
  std::vector<std::unique_ptr<std::string>> names_;
  int used_ = -1;
};

}  // namespace ingot::gpu
