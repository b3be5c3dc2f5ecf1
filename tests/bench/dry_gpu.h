// A GPU that computes nothing. Its memory consists of addresses alone, and it lists what it is asked to run. So a step
// of a model of any size takes the time of its host code, and no memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/gpu_device.h"
#include "ops/context.h"

namespace ingot::bench {

// What the code that chooses kernels asks about a GPU.
struct GpuModel {
  DeviceKind kind;
  const char* name;  // "H200"
  const char* arch;  // "sm_90"
  size_t memory;     // bytes
};

inline constexpr const char* copy_to_host = "copy to host";
inline constexpr const char* copy_to_device = "copy to device";

// Something that the device is asked to run.
struct Launch {
  // A kernel's symbol. Of libraries, for instance "cuBLASLt bf16 f32 NT += bias split-k": the types of operands and
  // result, N and T as in BLAS, whether it adds to the result, whether it adds a bias, and whether the library may take
  // its sums in pieces (ops::Invariance::none). copy_to_host, copy_to_device, "fill".
  std::string kernel;
  // "BLOCKS" or "BLOCKSxROWS" of the grid. Of a gemm "MxNxK", of library attention "TOKENSxHEADSxSIZE", else empty.
  std::string shape;
  int64_t blocks = 0;    // of the whole grid; 0 for what is no kernel of ours
  int threads = 0;       // per block
  size_t shared = 0;     // bytes of dynamic shared memory
  double bytes = 0;      // each operand once; those of kernels come from the op (StepRecorder)
  double flops = 0;      // of a library's gemm; otherwise as `bytes`
  std::string op;        // the innermost op that it belongs to; empty: none
  bool is_gemm = false;  // by a library
};

// Libraries decline what our bindings decline with the fake libraries of tests/backend/gpu/fakes, which accept all that
// the vendors document; those fakes run nothing here.
class DryGpu : public gpu::GpuDevice {
 public:
  explicit DryGpu(const GpuModel& model);
  ~DryGpu() override;

  DeviceKind kind() const override { return model_.kind; }
  std::string name() const override { return std::string(ingot::name(kind())) + ":0"; }
  std::string arch() const override { return model_.arch; }
  size_t memory_bytes() const override { return model_.memory; }
  size_t memory_available() const override { return model_.memory - used_; }
  int warp_width() const override { return arch().starts_with("gfx9") ? 64 : 32; }
  void* allocate(size_t bytes) override;
  void release(void* data, size_t bytes) noexcept override;
  void copy_from_host(void* to, const void* from, size_t bytes) override;
  void copy_to_host(void* to, const void* from, size_t bytes) override;  // zeros
  void fill_zero(void* data, size_t bytes) override;
  void launch(const gpu::KernelInfo& kernel, const void* args, gpu::Grid grid, size_t dynamic_shared_bytes) override;
  gpu::MatmulLibrary& matmul_library() override { return *matmul_; }
  gpu::AttentionLibrary& attention_library() override;
  void* library_workspace() override;

  std::vector<Launch>& launches() { return launches_; }
  size_t peak() const { return peak_; }  // bytes

 private:
  void add(const char* what, size_t bytes);  // nothing for no bytes

  GpuModel model_;
  std::vector<Launch> launches_;
  std::unique_ptr<gpu::MatmulLibrary> matmul_;
  std::unique_ptr<gpu::AttentionLibrary> attention_;
  void* workspace_ = nullptr;
  uintptr_t next_ = uintptr_t{1} << 40;
  size_t used_ = 0, peak_ = 0;
};

// Work of a step that does not follow from the tensors of its ops (ops::OpWork).
struct AttentionCost {
  double flops_per_token = 0;  // of attention's forward pass, mean over the layers
  double paged_flops = 0;      // of a call of paged_attention
  double paged_bytes = 0;      // of keys and values that such a call reads
};

// Names the op of every launch while a context is watched. The bytes and FLOPs of an op (ops/work.h) are divided among
// its launches with the most dynamic shared memory, which do the arithmetic; without such they are given to the launch
// with the most threads. A library's gemms have their own.
class StepRecorder : public ops::OpObserver {
 public:
  StepRecorder(DryGpu& gpu, AttentionCost attention) : gpu_(gpu), attention_(attention) {}
  void begins(const char* op) override;
  void ran(const char* op, std::span<const Tensor> tensors, const ops::OpWork& work) override;

 private:
  struct RunningOp {
    size_t first;            // its first launch
    bool has_gemms = false;  // whether an op inside it is a gemm
  };
  DryGpu& gpu_;
  AttentionCost attention_;
  std::vector<RunningOp> running_;
};

}  // namespace ingot::bench
