// A GPU, or what stands for one: memory of its own, and kernels that run on it in the order of their launches.
#pragma once

#include <array>
#include <string>

#include "backend/gpu/kernel.h"
#include "base/function_ref.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace ingot::gpu {

class AttentionLibrary;
class MatmulLibrary;

// The op that launches are for, as errors name it.
class OpNote {
 public:
  OpNote() = default;
  OpNote(const char* op, std::span<const Operand> operands);  // keeps the first eight
  std::string text() const;                                   // "rms_norm(bf16[4, 64], f32[64])", "no op"

 private:
  const char* op_ = nullptr;
  size_t count_ = 0;
  std::array<Operand, 8> operands_{};
};

class GpuDevice : public Device {
 public:
  bool host_visible() const override { return false; }
  virtual int warp_width() const = 0;

  // Starts the kernel in the compute stream with a copy of its arguments and returns; later launches and copies wait
  // for it. Errors of the device may be told by a later call, naming that one too.
  virtual void launch(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_shared_bytes) = 0;

  // For vendors' libraries: the driver's own handles (CUstream, CUcontext; hipStream_t). Null where there is none.
  virtual void* native_stream(Stream) const { return nullptr; }
  virtual void* native_context() const { return nullptr; }

  // Hands the compute stream (as native_stream) to a library that starts work in it; errors name it as they do kernels.
  virtual void call_library(const char* library, FunctionRef<void(void* stream)> call);
  // The vendor's for this device, opened when they are first asked for; then the device is the calling thread's.
  // ErrorKind::internal on devices of vendors that have none.
  virtual MatmulLibrary& matmul_library();
  virtual AttentionLibrary& attention_library();

  void begin_op(const char* op, std::span<const Operand> operands) override { op_ = OpNote(op, operands); }

 protected:
  const OpNote& op() const { return op_; }

 private:
  OpNote op_;
};

}  // namespace ingot::gpu
