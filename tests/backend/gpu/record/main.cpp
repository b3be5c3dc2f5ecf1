// record_launches FOLDER 32|64: records one launch of every GPU kernel while the op table runs on the simulated device
// of that many lanes, with the device memory before and after it. tools/emulate_amd.py runs AMD's machine code of the
// kernel on launches of 64 lanes, tools/emulate_ptx.py NVIDIA's PTX on those of 32. FOLDER gets, for each kernel,
// NAME.before and NAME.after: device memory from `base` on; and launches.tsv, a line a kernel:
//   name, source, ops that launch it (commas), op and case of this launch, grid x and y, threads, bytes of dynamic
//   shared memory, address of the memory, arguments (hexadecimal), and address:bytes:type:tolerance of each allocation
//   (commas; "scratch" for what the table has no type for).
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/sim/executor.h"
#include "base/error.h"
#include "ops/testing/op_table.h"
#include "tensor/tolerance.h"

namespace ingot {
namespace {

constexpr size_t base = size_t{1} << 40;  // free in every process, and below the emulator's address limit (4 TiB)
constexpr size_t region_bytes = size_t{1} << 30;
constexpr size_t alignment = 256;
constexpr int few_blocks = 16;

struct Region {
  size_t address = 0;
  size_t bytes = 0;
  std::string type;
  double tolerance = 0;
};

struct Launch {
  std::string source, op, op_case;
  gpu::Grid grid;
  int threads = 0;
  size_t dynamic_shared_bytes = 0;
  std::vector<std::byte> args, before, after;
  std::vector<Region> regions;
  size_t changed = 0;  // bytes
};

// Chooses the launch to emulate: among launches with few blocks the one that changes the most bytes, else the one with
// the fewest blocks.
bool better(const Launch& a, const Launch& b) {
  const int64_t blocks_a = a.grid.x * a.grid.y;
  const int64_t blocks_b = b.grid.x * b.grid.y;
  if ((blocks_a <= few_blocks) != (blocks_b <= few_blocks)) return blocks_a <= few_blocks;
  return blocks_a <= few_blocks ? a.changed > b.changed : blocks_a < blocks_b;
}

// A simulated device whose memory is one region at a fixed address.
class RecordingDevice : public gpu::GpuDevice {
 public:
  explicit RecordingDevice(int lanes) : executor_(lanes), lanes_(lanes) {
    void* fixed_address = std::bit_cast<void*>(base);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    memory_ = static_cast<std::byte*>(mmap(fixed_address, region_bytes, PROT_READ | PROT_WRITE, flags, -1, 0));
    if (memory_ != fixed_address) throw_error(ErrorKind::resource, "the address {:#x} is not free", base);
  }
  ~RecordingDevice() override { munmap(memory_, region_bytes); }
  RecordingDevice(const RecordingDevice&) = delete;
  RecordingDevice& operator=(const RecordingDevice&) = delete;

  DeviceKind kind() const override { return DeviceKind::sim; }
  std::string name() const override { return fmt::format("sim{}", lanes_); }
  std::string arch() const override { return name(); }
  size_t memory_bytes() const override { return region_bytes; }
  size_t memory_available() const override { return region_bytes - used_; }
  int warp_width() const override { return lanes_; }

  void* allocate(size_t bytes) override {
    const size_t whole = (bytes + alignment) / alignment * alignment;  // at least one byte between allocations
    if (used_ + whole > region_bytes) throw_error(ErrorKind::resource, "{} bytes are needed", bytes);
    std::byte* data = memory_ + used_;
    std::memset(data, 0, bytes);
    std::memset(data + bytes, 0xff, whole - bytes);
    regions_.push_back({base + used_, bytes, "scratch", 0.0});
    used_ += whole;
    ++live_;
    return data;
  }
  void release(void*, size_t) noexcept override {
    if (--live_ > 0) return;
    used_ = 0;
    regions_.clear();
  }
  void copy_from_host(void* destination, const void* source, size_t bytes) override {
    if (bytes > 0) std::memcpy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    if (bytes > 0) std::memcpy(destination, source, bytes);
  }

  void launch(const gpu::KernelInfo& kernel, const void* args, gpu::Grid grid, size_t dynamic_shared_bytes) override {
    const auto* arguments = static_cast<const std::byte*>(args);
    Launch now{kernel.file,
               case_->op,
               case_->name,
               grid,
               kernel.block_threads(warp_width()),
               dynamic_shared_bytes,
               {arguments, arguments + kernel.args_bytes},
               {memory_, memory_ + used_},
               {},
               regions_};
    executor_.run(kernel, args, grid, dynamic_shared_bytes, gpu::sim::Schedule::forward);
    now.after.assign(memory_, memory_ + used_);
    for (size_t i = 0; i < used_; ++i) now.changed += now.before[i] != now.after[i] ? 1 : 0;
    ops_[kernel.name].insert(case_->op);
    const auto [at, added] = best_.try_emplace(kernel.name, now);
    if (!added && better(now, at->second)) at->second = std::move(now);
  }

  // Runs the case and keeps the best launch of each kernel. False when no implementation accepts the case.
  bool run(const ops::Registry& registry, const ops::testing::OpCase& op_case) {
    case_ = &op_case;
    ops::testing::OpCase typed = op_case;
    typed.run = [&](ops::Context& context, const ops::testing::Arguments& arguments) {
      for (Region& region : regions_) {
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
      op_case.run(context, arguments);
    };
    Arena none;
    ops::Context context{*this, registry, none, nullptr};
    return !ops::testing::output_bytes(context, typed).empty();
  }

  size_t write(const std::filesystem::path& folder) const {
    std::ofstream list(folder / "launches.tsv");
    for (const auto& [kernel, launch] : best_) {
      std::ofstream(folder / (kernel + ".before"), std::ios::binary)
          .write(reinterpret_cast<const char*>(launch.before.data()),
                 static_cast<std::streamsize>(launch.before.size()));
      std::ofstream(folder / (kernel + ".after"), std::ios::binary)
          .write(reinterpret_cast<const char*>(launch.after.data()), static_cast<std::streamsize>(launch.after.size()));
      std::string args;
      for (const std::byte byte : launch.args) args += fmt::format("{:02x}", static_cast<unsigned>(byte));
      std::vector<std::string> regions;
      for (const Region& region : launch.regions) {
        regions.push_back(fmt::format("{}:{}:{}:{}", region.address, region.bytes, region.type, region.tolerance));
      }
      list << fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", kernel, launch.source,
                          fmt::join(ops_.at(kernel), ","), launch.op, launch.op_case, launch.grid.x, launch.grid.y,
                          launch.threads, launch.dynamic_shared_bytes, base, args, fmt::join(regions, ","));
    }
    list.flush();
    if (!list) throw_error(ErrorKind::resource, "{} cannot be written", (folder / "launches.tsv").string());
    return best_.size();
  }

 private:
  gpu::sim::Executor executor_;
  int lanes_;
  std::byte* memory_ = nullptr;
  size_t used_ = 0;
  int live_ = 0;
  const ops::testing::OpCase* case_ = nullptr;
  std::vector<Region> regions_;
  std::map<std::string, Launch> best_;
  std::map<std::string, std::set<std::string>> ops_;
};

void record(const std::filesystem::path& folder, int lanes) {
  std::filesystem::create_directories(folder);
  ops::Registry all;
  gpu::register_ops(all, DeviceKind::sim);
  RecordingDevice device(lanes);
  size_t cases = 0;
  for (const ops::Registry::Listing& listing : all.listings()) {
    for (const std::string& implementation : listing.implementations) {
      ops::Registry registry;
      gpu::register_ops(registry, DeviceKind::sim);
      registry.select_implementation(listing.op, implementation);
      for (const ops::testing::OpCase& op_case : ops::testing::op_cases()) {
        if (op_case.op == listing.op && !op_case.timing_only && device.run(registry, op_case)) ++cases;
      }
    }
  }
  std::cout << fmt::format("{} kernels of {} cases\n", device.write(folder), cases);
}

}  // namespace
}  // namespace ingot

int main(int count, char** values) {
  const std::string lanes = count == 3 ? values[2] : "";
  if (lanes != "32" && lanes != "64") {
    std::cerr << "usage: record_launches FOLDER 32|64\n";
    return 2;
  }
  try {
    ingot::record(values[1], std::stoi(lanes));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
