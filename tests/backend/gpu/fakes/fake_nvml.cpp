// A fake NVML with one GPU, whose energy counter grows by 2.5 J with each reading. Written from its documentation, not
// from our binding.
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int success = 0;
constexpr int uninitialized = 1;
constexpr int invalid_argument = 2;
constexpr int not_found = 6;
bool initialized = false;
int gpu = 0;
unsigned long long energy_mj = 1000;

}  // namespace

EXPORT int nvmlInit_v2() {
  initialized = true;
  return success;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  if (!initialized) return uninitialized;
  *device = &gpu;
  return std::strcmp(address, "0000:3b:00.0") == 0 ? success : not_found;
}
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  *millijoules = energy_mj += 2500;
  return device == &gpu ? success : invalid_argument;
}
