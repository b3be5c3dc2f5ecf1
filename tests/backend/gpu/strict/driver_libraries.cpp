// What the stand-ins for vendors' libraries ask of the driver.
#include <cstring>

#include "tests/backend/gpu/strict/driver.h"

namespace strict {

Status Driver::current_device(int* device) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  *device = current_;
  return success;
}

Status Driver::may_allocate(const char* what) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  return refuse_in_capture(what);
}

Status Driver::share(void** copy, const void* data, size_t bytes) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  const uintptr_t address = stage(bytes);
  if (address == 0) return out_of_memory;
  *copy = reinterpret_cast<void*>(address);
  std::memcpy(*copy, data, bytes);
  return success;
}

Status Driver::call_library(const LibraryCall& call) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  if (call.device != current_) {
    return misuse(invalid_context, "%s: the library's handle is of device %d, and device %d is current", call.function,
                  call.device, current_);
  }
  Stream* stream = stream_of(call.stream);
  if (stream == nullptr) return invalid_handle;
  for (size_t i = 0; i < call.memory_count; ++i) {
    if (!check_device_range(call.memory[i].data, call.memory[i].bytes)) return invalid_value;
  }
  Command command;
  if (call.args_bytes > sizeof command.args || std::strlen(call.function) >= sizeof command.kernel) {
    return misuse(invalid_value, "%s has arguments of %zu bytes", call.function, call.args_bytes);
  }
  command.kind = CommandKind::library;
  command.args_bytes = static_cast<uint32_t>(call.args_bytes);
  std::memcpy(command.kernel, call.function, std::strlen(call.function));
  std::memcpy(command.args, call.args, call.args_bytes);
  return submit(*stream, command);
}

}  // namespace strict
