// Shared by the tests of vendor libraries.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/runtime/attention_library.h"
#include "backend/gpu/runtime/matmul_library.h"
#include "backend/gpu/sim/sim_device.h"
#include "ops/testing/op_table.h"

namespace ingot::gpu {

// Sets an environment variable (removes it for null) and restores it at the end of its lifetime.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str()); before != nullptr) before_ = before;
    put(value);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { put(before_ ? before_->c_str() : nullptr); }

 private:
  void put(const char* value) {
    if (value != nullptr) {
      setenv(name_.c_str(), value, 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  std::string name_;
  std::optional<std::string> before_;
};

// A vendor's device in host memory: our kernels are simulated, and the vendor libraries are the ones passed in.
class FakeDevice : public GpuDevice {
 public:
  FakeDevice(DeviceKind kind, std::unique_ptr<MatmulLibrary> matmul, std::unique_ptr<AttentionLibrary> attention)
      : kind_(kind), sim_(sim::make_device(32)), matmul_(std::move(matmul)), attention_(std::move(attention)) {}
  DeviceKind kind() const override { return kind_; }
  std::string name() const override { return "pretend:0"; }
  std::string arch() const override { return kind_ == DeviceKind::cuda ? "sm_90" : "gfx942"; }
  size_t memory_bytes() const override { return sim_->memory_bytes(); }
  size_t memory_available() const override { return sim_->memory_available(); }
  void* allocate(size_t bytes) override { return sim_->allocate(bytes); }
  void release(void* data, size_t bytes) noexcept override { sim_->release(data, bytes); }
  void copy_from_host(void* to, const void* from, size_t bytes) override { sim_->copy_from_host(to, from, bytes); }
  void copy_to_host(void* to, const void* from, size_t bytes) override { sim_->copy_to_host(to, from, bytes); }
  void fill_zero(void* data, size_t bytes) override { sim_->fill_zero(data, bytes); }
  int warp_width() const override { return sim_->warp_width(); }
  void launch(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_shared_bytes) override {
    sim_->launch(kernel, args, grid, dynamic_shared_bytes);
  }
  // The fake library computes at once, after the simulated work that was submitted before.
  void run_in_library(const char*, FunctionRef<void(void*)> call) override {
    const std::unique_ptr<Event> event = sim_->make_event();
    event->record(Stream::compute);
    event->wait();
    call(nullptr);
  }
  MatmulLibrary& matmul_library() override { return *matmul_; }
  AttentionLibrary& attention_library() override { return *attention_; }
  void* library_workspace() override {
    if (workspace_.data() == nullptr) workspace_ = Buffer(*sim_, matmul_workspace_bytes + matmul_workspace_alignment);
    size_t room = workspace_.bytes();
    void* data = workspace_.data();
    return std::align(matmul_workspace_alignment, matmul_workspace_bytes, data, room);
  }

 private:
  DeviceKind kind_;
  std::unique_ptr<GpuDevice> sim_;
  std::unique_ptr<MatmulLibrary> matmul_;
  std::unique_ptr<AttentionLibrary> attention_;
  Buffer workspace_;
};

// Compares an implementation of an op with the double-precision reference on the op table's cases. Returns the number
// of cases it accepts, of which the first `max_cases` are compared.
inline int agreeing_cases(GpuDevice& device, const std::string& op, const std::string& implementation,
                          int max_cases = std::numeric_limits<int>::max()) {
  ops::Registry registry;
  register_ops(registry, device.kind());
  registry.select_implementation(op, implementation);
  int accepted = 0;
  for (const ops::testing::OpCase& op_case : ops::testing::op_cases()) {
    if (op_case.op != op || op_case.timing_only || accepted == max_cases) continue;
    Arena scratch;
    ops::Context context{device, registry, scratch, nullptr};
    const ops::testing::Verdict verdict = ops::testing::compare(context, op_case);
    EXPECT_NE(verdict.outcome, ops::testing::Outcome::failed) << verdict.text;
    accepted += verdict.outcome == ops::testing::Outcome::passed ? 1 : 0;
  }
  return accepted;
}

}  // namespace ingot::gpu
