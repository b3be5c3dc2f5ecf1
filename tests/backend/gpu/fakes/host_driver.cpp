// Device memory is host memory, and calls run at once.
#include <cstring>
#include <list>
#include <mutex>

#include "tests/backend/gpu/fakes/device_functions.h"
#include "tests/backend/gpu/fakes/driver.h"

namespace fake {

int current_device() { return 0; }
bool may_allocate(const char*) { return true; }

void* share(const void* data, size_t bytes) {
  static std::mutex mutex;
  static std::list<std::vector<std::byte>> all;
  const std::scoped_lock lock(mutex);
  const auto* begin = static_cast<const std::byte*>(data);
  return all.emplace_back(begin, begin + bytes).data();
}

bool launch(int, void*, const char* function, const void* args, size_t, const std::vector<DeviceMemory>&) {
  find_device_function(function)->run(args);
  return true;
}

}  // namespace fake
