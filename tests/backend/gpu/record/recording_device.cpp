#include "tests/backend/gpu/record/recording_device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <bit>
#include <cstring>
#include <regex>

#include "backend/gpu/ops.h"
#include "base/error.h"
#include "tensor/tolerance.h"

namespace ingot {
namespace {

constexpr size_t region_bytes = size_t{1} << 30;
constexpr size_t alignment = 256;

}  // namespace

RecordingDevice::RecordingDevice(int lanes, std::function<void(RecordedLaunch&&)> launched, std::string architecture)
    : executor_(lanes), lanes_(lanes), launched_(std::move(launched)), architecture_(std::move(architecture)) {
  void* fixed_address = std::bit_cast<void*>(recorded_base);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  memory_ = static_cast<std::byte*>(mmap(fixed_address, region_bytes, PROT_READ | PROT_WRITE, flags, -1, 0));
  if (memory_ != fixed_address) throw_error(ErrorKind::resource, "the address {:#x} is not free", recorded_base);
}

RecordingDevice::~RecordingDevice() { munmap(memory_, region_bytes); }

std::string RecordingDevice::name() const { return fmt::format("sim{}", lanes_); }

size_t RecordingDevice::memory_bytes() const { return region_bytes; }

void* RecordingDevice::allocate(size_t bytes) {
  const size_t whole = (bytes + alignment) / alignment * alignment;  // at least one byte between allocations
  if (used_ + whole > region_bytes) throw_error(ErrorKind::resource, "{} bytes are needed", bytes);
  std::byte* data = memory_ + used_;
  std::memset(data, 0, bytes);
  std::memset(data + bytes, 0xff, whole - bytes);
  regions_.push_back({recorded_base + used_, bytes, "scratch", 0.0});
  used_ += whole;
  ++live_;
  return data;
}

void RecordingDevice::release(void*, size_t) noexcept {
  if (--live_ > 0) return;
  used_ = 0;
  regions_.clear();
}

void RecordingDevice::copy_from_host(void* destination, const void* source, size_t bytes) {
  if (bytes > 0) std::memcpy(destination, source, bytes);
}

void RecordingDevice::copy_to_host(void* destination, const void* source, size_t bytes) {
  if (bytes > 0) std::memcpy(destination, source, bytes);
}

void RecordingDevice::launch(const gpu::KernelInfo& kernel, const void* args, gpu::Grid grid,
                             size_t dynamic_shared_bytes) {
  const auto* arguments = static_cast<const std::byte*>(args);
  RecordedLaunch now{kernel.name,
                     kernel.file,
                     case_->op,
                     case_->name,
                     launches_[kernel.name]++,
                     grid,
                     kernel.block_threads(warp_width()),
                     dynamic_shared_bytes,
                     {arguments, arguments + kernel.args_bytes},
                     {},
                     {},
                     regions_};
  if (executes()) {
    now.before.assign(memory_, memory_ + used_);
    executor_.run(kernel, args, grid, dynamic_shared_bytes, gpu::sim::Schedule::forward);
    now.after.assign(memory_, memory_ + used_);
  }
  launched_(std::move(now));
}

// The types and tolerances of the allocations that are operands of the case.
void RecordingDevice::set_types(const ops::testing::OpCase& op_case, const ops::testing::Arguments& arguments) {
  for (RecordedRegion& region : regions_) {
    region.tolerance = tolerance(DType::f32, op_case.length);
    for (size_t i = 0; i < arguments.tensors.size(); ++i) {
      const Tensor& tensor = arguments.tensors[i];
      if (tensor.data == nullptr || reinterpret_cast<size_t>(tensor.data) != region.address) continue;
      region.type = ingot::name(tensor.dtype);
      const bool real = tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16;
      const DType rounded = tensor.dtype == DType::f32 ? op_case.operands[i].factors : tensor.dtype;
      region.tolerance = real ? tolerance(rounded, op_case.length) : 0.0;
    }
  }
}

// False when no implementation accepts the case.
bool RecordingDevice::run(const ops::Registry& registry, const ops::testing::OpCase& op_case) {
  case_ = &op_case;
  launches_.clear();
  ops::testing::OpCase typed = op_case;
  typed.run = [&](ops::Context& context, const ops::testing::Arguments& arguments) {
    set_types(op_case, arguments);
    op_case.run(context, arguments);
  };
  Arena none;
  ops::Context context{*this, registry, none, nullptr};
  return !ops::testing::output_bytes(context, typed).empty();
}

size_t RecordingDevice::run_op_table(const std::string& ops) {
  const std::regex chosen(ops);
  ops::Registry all;
  gpu::register_ops(all, kind());
  size_t cases = 0;
  for (const ops::Registry::Listing& listing : all.listings()) {
    if (!std::regex_search(listing.op, chosen)) continue;
    for (const std::string& implementation : listing.implementations) {
      ops::Registry registry;
      gpu::register_ops(registry, kind());
      registry.select_implementation(listing.op, implementation);
      for (const ops::testing::OpCase& op_case : ops::testing::op_cases()) {
        if (op_case.op == listing.op && !op_case.timing_only && run(registry, op_case)) ++cases;
      }
    }
  }
  return cases;
}

}  // namespace ingot
