#include "tests/bench/dry_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/gpu/runtime/attention_library.h"
#include "backend/gpu/runtime/matmul_library.h"
#include "base/error.h"
#include "tests/backend/gpu/fake_device.h"

namespace ingot::bench {

namespace {

// Declines what `binding` declines, and lists what it would run.
class DryMatmul : public gpu::MatmulLibrary {
 public:
  DryMatmul(std::string name, std::unique_ptr<MatmulLibrary> binding, std::vector<Launch>& launches)
      : name_(std::move(name)), binding_(std::move(binding)), launches_(launches) {}
  std::string_view decline(const gpu::Gemm& product) override { return binding_->decline(product); }
  gpu::MatmulPlan describe(const gpu::Gemm& product) override { return binding_->describe(product); }
  void multiply(const gpu::Gemm& p, void*, void*) override {
    const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
    Launch launch;
    launch.kernel =
        fmt::format("{} {} {} {}{}{}{}{}", name_, p.in == DType::u8 ? "fp8" : ingot::name(p.in), ingot::name(p.out),
                    p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.addend != nullptr ? " +=" : "",
                    p.bias != nullptr ? " bias" : "", p.invariance == ops::Invariance::none ? " split-k" : "");
    launch.shape = fmt::format("{}x{}x{}", p.m, p.n, p.k);
    launch.bytes =
        (m * k + k * n) * static_cast<double>(size_of(p.in)) +
        ((p.addend != nullptr ? 2 : 1) * m + (p.bias != nullptr ? 1 : 0)) * n * static_cast<double>(size_of(p.out));
    launch.flops = 2 * m * n * k;
    launch.is_gemm = true;
    launches_.push_back(std::move(launch));
  }

 private:
  std::string name_;
  std::unique_ptr<MatmulLibrary> binding_;
  std::vector<Launch>& launches_;
};

class DryAttention : public gpu::AttentionLibrary {
 public:
  DryAttention(std::unique_ptr<AttentionLibrary> binding, std::vector<Launch>& launches)
      : binding_(std::move(binding)), launches_(launches) {}
  std::string_view decline(const gpu::PackedAttention& call) override { return binding_->decline(call); }
  void run(const gpu::PackedAttention& call, void*, void*) override {
    Launch launch;
    launch.kernel = "cuDNN attention";
    launch.shape = fmt::format("{}x{}x{}", call.tokens, call.heads, call.d);
    launches_.push_back(std::move(launch));
  }

 private:
  std::unique_ptr<AttentionLibrary> binding_;
  std::vector<Launch>& launches_;
};

// Numbers of an address are never read: only its alignment matters.
constexpr size_t alignment = 256;
size_t whole(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

double threads_of(const Launch& launch) { return static_cast<double>(launch.blocks) * launch.threads; }

}  // namespace

DryGpu::DryGpu(const GpuModel& model) : model_(model) {
  if (kind() == DeviceKind::cuda) {
    const gpu::ScopedVariable blas("INGOT_CUBLASLT_LIBRARY", INGOT_FAKE_CUBLASLT);
    matmul_ = std::make_unique<DryMatmul>("cuBLASLt", gpu::open_cublaslt(), launches_);
    const gpu::ScopedVariable cudnn("INGOT_CUDNN_LIBRARY", INGOT_FAKE_CUDNN);
    attention_ = std::make_unique<DryAttention>(gpu::open_cudnn(), launches_);
  } else {
    const gpu::ScopedVariable blas("INGOT_HIPBLASLT_LIBRARY", INGOT_FAKE_HIPBLASLT);
    const gpu::ScopedVariable fp8("INGOT_FAKE_GFX950", arch() == "gfx950" ? "1" : nullptr);
    matmul_ = std::make_unique<DryMatmul>("hipBLASLt", gpu::open_hipblaslt(), launches_);
  }
}

DryGpu::~DryGpu() = default;

void* DryGpu::allocate(size_t bytes) {
  if (bytes > memory_available()) {
    throw_error(ErrorKind::resource, "{} bytes of memory are needed, {} are available", bytes, memory_available());
  }
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  void* data = std::bit_cast<void*>(next_);
  next_ += whole(std::max<size_t>(bytes, 1));
  return data;
}

void DryGpu::release(void*, size_t bytes) noexcept { used_ -= bytes; }

void DryGpu::add(const char* what, size_t bytes) {
  if (bytes == 0) return;
  Launch launch;
  launch.kernel = what;
  launch.bytes = static_cast<double>(bytes);
  launches_.push_back(std::move(launch));
}

void DryGpu::copy_from_host(void*, const void*, size_t bytes) { add(copy_to_device, bytes); }

void DryGpu::copy_to_host(void* to, const void*, size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
  add(bench::copy_to_host, bytes);
}

void DryGpu::fill_zero(void*, size_t bytes) { add("fill", bytes); }

void DryGpu::launch(const gpu::KernelInfo& kernel, const void*, gpu::Grid grid, size_t dynamic_shared_bytes) {
  Launch launch;
  launch.kernel = kernel.name;
  launch.shape = grid.y == 1 ? fmt::format("{}", grid.x) : fmt::format("{}x{}", grid.x, grid.y);
  launch.blocks = grid.x * grid.y;
  launch.threads = kernel.block_threads(warp_width());
  launch.shared = dynamic_shared_bytes;
  launches_.push_back(std::move(launch));
}

gpu::AttentionLibrary& DryGpu::attention_library() {
  return attention_ != nullptr ? *attention_ : GpuDevice::attention_library();
}

void* DryGpu::library_workspace() {
  if (workspace_ == nullptr) workspace_ = allocate(gpu::matmul_workspace_bytes);
  return workspace_;
}

void StepRecorder::begins(const char*) { running_.push_back({.first = gpu_.launches().size()}); }

void StepRecorder::ran(const char* op, std::span<const Tensor>, const ops::OpWork& work) {
  const RunningOp running = running_.back();
  running_.pop_back();
  if (!running_.empty()) running_.back().has_gemms |= work.is_gemm();
  bool has_gemms = running.has_gemms;
  std::vector<Launch*> own;
  std::vector<Launch>& launches = gpu_.launches();
  for (size_t i = running.first; i < launches.size(); ++i) {
    if (!launches[i].op.empty()) continue;  // an op inside this one has it
    launches[i].op = op;
    has_gemms |= launches[i].is_gemm;
    own.push_back(&launches[i]);
  }
  if (own.empty() || has_gemms) return;
  const auto less_shared = [](const Launch* a, const Launch* b) { return a->shared < b->shared; };
  if (const size_t shared = (*std::max_element(own.begin(), own.end(), less_shared))->shared; shared > 0) {
    std::erase_if(own, [&](const Launch* launch) { return launch->shared < shared; });
  } else {
    const auto fewer_threads = [](const Launch* a, const Launch* b) { return threads_of(*a) < threads_of(*b); };
    own = {*std::max_element(own.begin(), own.end(), fewer_threads)};
  }
  const bool paged = op == std::string_view("paged_attention");
  const double bytes = work.bytes + (paged ? attention_.paged_bytes : 0);
  const double flops =
      work.gemm_flops() + attention_.flops_per_token * work.attention_tokens + (paged ? attention_.paged_flops : 0);
  for (Launch* launch : own) {
    launch->bytes += bytes / static_cast<double>(own.size());
    launch->flops += flops / static_cast<double>(own.size());
  }
}

}  // namespace ingot::bench
