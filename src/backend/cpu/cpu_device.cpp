#include "backend/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <limits>

#include "base/energy.h"
#include "base/error.h"
#include "base/host_memory.h"

namespace ingot::cpu {
namespace {

// The value of a line "Name:   N kB" of /proc/meminfo, in bytes; 0 if there is none.
size_t meminfo(std::string_view wanted) {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, wanted.size(), wanted) != 0 || line[wanted.size()] != ':') continue;
    return static_cast<size_t>(std::strtoull(line.c_str() + wanted.size() + 1, nullptr, 10)) * 1024;
  }
  return 0;
}

// The number in a file; `fallback` if the file is missing or contains "max".
size_t number_in(const std::string& path, size_t fallback) {
  std::ifstream file(path);
  size_t value = 0;
  return file >> value ? value : fallback;
}

constexpr size_t unlimited = std::numeric_limits<size_t>::max();

// The memory limit of the process's control group, version 2 or 1 (as seen inside a container).
struct Limit {
  size_t most = unlimited;
  size_t used = 0;  // without the part of the page cache that can be dropped
};

Limit group_limit() {
  struct Files {
    const char *most, *used, *statistics, *droppable;
  };
  static constexpr Files versions[] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
       "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"}};
  for (const Files& files : versions) {
    Limit limit{number_in(files.most, unlimited), number_in(files.used, 0)};
    if (limit.most == unlimited) continue;
    std::ifstream statistics(files.statistics);
    std::string key;
    size_t value = 0;
    while (statistics >> key >> value) {
      if (key == files.droppable) limit.used -= std::min(limit.used, value);
    }
    return limit;
  }
  return {};
}

// Resident bytes of this process's anonymous memory (no files).
size_t touched() {
  std::ifstream file("/proc/self/statm");
  size_t size = 0;
  size_t resident = 0;
  size_t shared = 0;
  if (!(file >> size >> resident >> shared)) return 0;
  return (resident - std::min(resident, shared)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(Isa isa) : isa_(isa) {}

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return "cpu"; }
  std::string arch() const override { return cpu::name(isa_); }
  size_t memory_bytes() const override { return std::min(meminfo("MemTotal"), group_limit().most); }

  size_t memory_available() const override {
    const Limit limit = group_limit();
    const size_t available = std::min(meminfo("MemAvailable"), limit.most - std::min(limit.most, limit.used));
    // The kernel counts a page as used only once it is touched, so allocated memory that is not touched yet is
    // subtracted.
    const size_t allocated = allocated_.load();
    const size_t untouched = allocated - std::min(allocated, touched());
    return available - std::min(available, untouched);
  }

  std::optional<double> joules() override {
    if (!energy_) energy_.emplace();
    return energy_->known() ? std::optional(energy_->joules()) : std::nullopt;
  }

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    // For small buffers, reading /proc would cost more than it saves.
    if (bytes >= huge_page) {
      const size_t available = memory_available();
      if (bytes > available) fail(bytes, available);
    }
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) fail(bytes, memory_available());
    allocated_ += bytes;
    advise_huge_pages(data, bytes);
    return data;
  }

  void release(void* data, size_t bytes) noexcept override {
    if (data == nullptr) return;
    unmap(data, bytes);
    allocated_ -= bytes;
  }

  void copy_from_host(void* destination, const void* source, size_t bytes) override {
    if (bytes != 0) std::memcpy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    if (bytes != 0) std::memcpy(destination, source, bytes);
  }
  bool host_visible() const override { return true; }

 private:
  [[noreturn]] static void fail(size_t bytes, size_t available) {
    throw_hint(ErrorKind::resource, "use a smaller model, batch or sequence length, or close other programs",
               "{} bytes of memory are needed, {} are available", bytes, available);
  }

  Isa isa_;
  std::atomic<size_t> allocated_{0};
  std::optional<PackageEnergy> energy_;  // created on first use
};

}  // namespace

std::unique_ptr<Device> make_device() { return std::make_unique<CpuDevice>(best_isa()); }

}  // namespace ingot::cpu
