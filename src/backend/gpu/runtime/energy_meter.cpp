// NVML and ROCm SMI, declared here so that none of their headers is needed.
#include "backend/gpu/runtime/energy_meter.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

#include "backend/gpu/runtime/vendor_library.h"
#include "base/error.h"

namespace ingot::gpu {
namespace {

void check(int status, const char* library, const char* what) {
  if (status != 0) throw_error(ErrorKind::unavailable, "{}: {}: status {}", library, what, status);
}

// NVML API Reference Guide; names without `nvml`.
class Nvml : public EnergyMeter {
 public:
  Nvml(std::unique_ptr<SharedLibrary> library, const std::string& pci_address) : library_(std::move(library)) {
    library_->bind(energy_, "nvmlDeviceGetTotalEnergyConsumption");
    check(library_->function<int()>("nvmlInit_v2")(), name, "initialisation");
    const auto find = library_->function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    check(find(pci_address.c_str(), &device_), name, pci_address.c_str());
    joules();  // fails for GPUs before Volta, which have no counter
  }
  double joules() override {
    unsigned long long millijoules = 0;
    check(energy_(device_, &millijoules), name, "energy");
    return static_cast<double>(millijoules) / 1e3;
  }

 private:
  static constexpr const char* name = "NVML";
  std::unique_ptr<SharedLibrary> library_;
  int (*energy_)(void*, unsigned long long*) = nullptr;
  void* device_ = nullptr;
};

// Converts "0000:3b:00.0" to the format of rsmi_dev_pci_id_get: domain << 32 | bus << 8 | device << 3 | function. Empty
// if the text is not an address.
std::optional<uint64_t> bdf_of(std::string_view address) {
  uint64_t parts[4] = {};
  constexpr char ends[] = {':', ':', '.', '\0'};
  const char* at = address.data();
  const char* const end = at + address.size();
  for (int i = 0; i < 4; ++i) {
    const auto [next, error] = std::from_chars(at, end, parts[i], 16);
    if (error != std::errc() || (i < 3 ? next == end || *next != ends[i] : next != end)) return std::nullopt;
    at = next + (i < 3 ? 1 : 0);
  }
  return parts[0] << 32 | parts[1] << 8 | parts[2] << 3 | parts[3];
}

// ROCm SMI's documentation (rocm_smi.h); names without `rsmi_`.
class RocmSmi : public EnergyMeter {
 public:
  RocmSmi(std::unique_ptr<SharedLibrary> library, const std::string& pci_address) : library_(std::move(library)) {
    constexpr uint64_t partition = uint64_t{0xf}
                                   << 28;  // the partition of a partitioned device; not part of the address
    library_->bind(energy_, "rsmi_dev_energy_count_get");
    check(library_->function<int(uint64_t)>("rsmi_init")(0), name, "initialisation");
    uint32_t count = 0;
    check(library_->function<int(uint32_t*)>("rsmi_num_monitor_devices")(&count), name, "counting devices");
    const auto pci_id = library_->function<int(uint32_t, uint64_t*)>("rsmi_dev_pci_id_get");
    const std::optional<uint64_t> wanted = bdf_of(pci_address);
    for (index_ = 0; index_ < count; ++index_) {
      uint64_t found = 0;
      check(pci_id(index_, &found), name, "a device's address");
      if (wanted && (found & ~partition) == *wanted) break;
    }
    if (index_ == count) throw_error(ErrorKind::unavailable, "{}: no device {} among {}", name, pci_address, count);
    joules();
  }
  double joules() override {
    uint64_t counts = 0;
    uint64_t nanoseconds = 0;
    float microjoules_per_count = 0;
    check(energy_(index_, &counts, &microjoules_per_count, &nanoseconds), name, "energy");
    return static_cast<double>(counts) * static_cast<double>(microjoules_per_count) / 1e6;
  }

 private:
  static constexpr const char* name = "ROCm SMI";
  std::unique_ptr<SharedLibrary> library_;
  int (*energy_)(uint32_t, uint64_t*, float*, uint64_t*) = nullptr;
  uint32_t index_ = 0;
};

template <class Meter>
std::unique_ptr<EnergyMeter> find_meter(const LibraryNames& names, const std::string& pci_address) {
  std::unique_ptr<EnergyMeter> meter;
  const std::string reason = try_libraries(names, [&](std::unique_ptr<SharedLibrary> library) {
    meter = std::make_unique<Meter>(std::move(library), pci_address);
  });
  if (meter == nullptr) throw Error(ErrorKind::unavailable, reason);
  return meter;
}

}  // namespace

// Both libraries come with the driver: they are where the dynamic linker looks, or in one of these folders.
std::unique_ptr<EnergyMeter> find_nvml_meter(const std::string& pci_address) {
  return find_meter<Nvml>({"INGOT_NVML_LIBRARY",
                           {"libnvidia-ml.so.1"},
                           [] { return std::vector<std::string>{"/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"}; }},
                          pci_address);
}

std::unique_ptr<EnergyMeter> find_rocm_smi_meter(const std::string& pci_address) {
  return find_meter<RocmSmi>({"INGOT_ROCM_SMI_LIBRARY",
                              {"librocm_smi64.so.8", "librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5",
                               "librocm_smi64.so.1", "librocm_smi64.so"},
                              [] { return std::vector<std::string>{"/opt/rocm/lib", "/opt/rocm/lib64"}; }},
                             pci_address);
}

}  // namespace ingot::gpu
