// A fake ROCm SMI with three GPUs, the last one a partition. The counter of GPU i grows by i + 0.5 J with each reading.
// Written from its documentation, not from our binding.
#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int success = 0;
constexpr int invalid_arguments = 1;
constexpr int not_initialized = 8;
bool initialized = false;
uint64_t counts[3] = {};
const uint64_t addresses[3] = {0x0000'0000'0000'0300, 0x0000'0000'0000'3b00, 0x0000'0001'2000'aff9};

}  // namespace

EXPORT int rsmi_init(uint64_t flags) {
  initialized = flags == 0;
  return success;
}
EXPORT int rsmi_num_monitor_devices(uint32_t* count) {
  *count = 3;
  return initialized ? success : not_initialized;
}
EXPORT int rsmi_dev_pci_id_get(uint32_t index, uint64_t* address) {
  if (index > 2) return invalid_arguments;
  *address = addresses[index];
  return success;
}
EXPORT int rsmi_dev_energy_count_get(uint32_t index, uint64_t* count, float* resolution, uint64_t* timestamp) {
  if (index > 2) return invalid_arguments;
  *count = counts[index] += 100'000 * index + 50'000;
  *resolution = 10;  // microjoules
  *timestamp = 0;
  return success;
}
