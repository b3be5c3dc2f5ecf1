// A GPU or a simulated one: a device with its own memory, which runs kernels in the order of their launches.
#pragma once

#include <array>
#include <set>
#include <string>

#include "backend/gpu/kernel.h"
#include "base/function_ref.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace ingot {
class Log;
}

namespace ingot::gpu {

class AttentionLibrary;
class MatmulLibrary;

// The op that kernels are currently launched for: named in error messages.
class OpLabel {
 public:
  OpLabel() = default;
  OpLabel(const char* op, std::span<const Operand> operands);  // keeps the first eight
  std::string text() const;                                    // "rms_norm(bf16[4, 64], f32[64])", "no op"

 private:
  const char* op_ = nullptr;
  size_t count_ = 0;
  std::array<Operand, 8> operands_{};
};

class GpuDevice : public Device {
 public:
  bool host_visible() const override { return false; }
  virtual int warp_width() const = 0;
  // Where it is in its machine, whatever number it has in this process: "0000:3b:00.0". Empty if it is nowhere.
  virtual std::string address() const { return {}; }

  // Starts the kernel in the compute stream with a copy of its arguments and returns. Later launches and copies in that
  // stream wait for it. A device error may surface in a later call; the message then names the op that was launched
  // last, which need not be the one that failed.
  virtual void launch(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_shared_bytes) = 0;

  // The driver's own handles (CUstream, CUcontext; hipStream_t), for vendors' libraries. Null where there are none.
  virtual void* native_stream(Stream) const { return nullptr; }
  virtual void* native_context() const { return nullptr; }

  // Calls `call` with the native handle of the compute stream, for a library that starts work in that stream. Error
  // messages name `library` where they would name a kernel.
  virtual void run_in_library(const char* library, FunctionRef<void(void* stream)> call);
  // The vendor's libraries for this device, opened on first use. These functions also make the device current in the
  // calling thread. ErrorKind::internal on devices whose vendor has no such library.
  virtual MatmulLibrary& matmul_library();
  virtual AttentionLibrary& attention_library();
  // Memory for the gemms that matmul_library() runs in the compute stream, one after another: matmul_workspace_bytes,
  // allocated with the library and a line of every memory plan. Errors as above.
  virtual void* library_workspace();

  void set_current_op(const char* op, std::span<const Operand> operands) override { op_ = OpLabel(op, operands); }

  // Where the device reports, once each, which calls a vendor's library declines, with the reason. The log outlives the
  // ops. Null: nowhere.
  void set_log(const Log* log) { log_ = log; }
  bool logs() const { return log_ != nullptr; }
  // Writes the line to the log if there is one and it has no line for `key` yet.
  void log_once(const std::string& key, const std::string& line);

 protected:
  const OpLabel& op() const { return op_; }

 private:
  OpLabel op_;
  const Log* log_ = nullptr;
  std::set<std::string> logged_;
};

}  // namespace ingot::gpu
