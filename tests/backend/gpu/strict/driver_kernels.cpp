// Modules and launches: CUDA Driver API, "Module Management" and "Execution Control"; CUDA C++ Programming Guide,
// "Compute Capabilities"; HIP Runtime API, "Module Management".
#include <cstring>
#include <limits>

#include "tests/backend/gpu/strict/driver.h"

namespace strict {

constexpr unsigned max_threads = 1024;  // of a block
constexpr unsigned max_grid_y = 65535;

Status Driver::load_module(void** module, const void* image) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  if (const Status failed = refuse_in_capture("a module is loaded"); failed != success) return failed;
  Image found;
  const Status status =
      hip_ ? read_amd_elf(image, settings_, found) : read_ptx(static_cast<const char*>(image), settings_, found);
  if (status != success) return status;
  auto* made = objects_.add<Module>(current_);
  made->image = std::move(found);
  *module = made;
  return success;
}

Status Driver::find_function(void** function, void* handle, const char* name) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  const Module* module = objects_.find<Module>(handle);
  if (module == nullptr) return misuse(invalid_handle, "%p is no module", handle);
  const auto found = module->image.args_bytes.find(name);
  if (found == module->image.args_bytes.end()) return not_found;
  auto* made = objects_.add<Function>(module->device);
  made->name = name;
  made->args_bytes = found->second;
  *function = made;
  return success;
}

// Bytes of a block.
size_t Driver::max_dynamic_shared() const {
  constexpr size_t kib = 1024;
  const std::string& arch = settings_.architecture;
  if (hip_) return arch == "gfx950" ? 160 * kib : 64 * kib;
  if (arch == "sm_80") return 163 * kib;
  return arch.starts_with("sm_8") ? 99 * kib : 227 * kib;
}

Status Driver::set_function_attribute(void* handle, int attribute, int value) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  Function* function = objects_.find<Function>(handle);
  if (function == nullptr) return misuse(invalid_handle, "%p is no function", handle);
  constexpr int max_dynamic_shared_size_bytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  if (attribute != max_dynamic_shared_size_bytes || value < 0 || static_cast<size_t>(value) > max_dynamic_shared()) {
    return misuse(invalid_value, "attribute %d of kernel %s is set to %d", attribute, function->name.c_str(), value);
  }
  function->max_dynamic_shared = static_cast<size_t>(value);
  return success;
}

Status Driver::launch(void* handle, Dim grid, Dim block, unsigned shared_bytes, void* stream_handle, void** parameters,
                      void** extra) {
  const Lock lock(mutex_);
  if (const Status failed = ready(); failed != success) return failed;
  const Function* function = objects_.find<Function>(handle);
  if (function == nullptr || function->device != current_) {
    return misuse(invalid_handle, "%p is no function of the current device", handle);
  }
  Stream* stream = stream_of(stream_handle);
  if (stream == nullptr) return invalid_handle;
  const char* name = function->name.c_str();
  if (block.x == 0 || block.y != 1 || block.z != 1 || block.x > max_threads) {
    return misuse(invalid_value, "kernel %s with %u x %u x %u threads", name, block.x, block.y, block.z);
  }
  if (grid.x == 0 || grid.x > static_cast<unsigned>(std::numeric_limits<int>::max()) || grid.y == 0 ||
      grid.y > max_grid_y || grid.z != 1) {
    return misuse(invalid_value, "kernel %s with %u x %u x %u blocks", name, grid.x, grid.y, grid.z);
  }
  // HIP Runtime API, hipModuleLaunchKernel: gridDim * blockDim < 2^32.
  if (hip_ && uint64_t{grid.x} * block.x > std::numeric_limits<uint32_t>::max()) {
    return misuse(invalid_configuration, "kernel %s with %u blocks of %u threads: 2^32 or more", name, grid.x, block.x);
  }
  if (shared_bytes > (hip_ ? max_dynamic_shared() : function->max_dynamic_shared)) {
    return misuse(invalid_value, "kernel %s with %u bytes of dynamic shared memory", name, shared_bytes);
  }
  if (parameters == nullptr || extra != nullptr) {
    return misuse(invalid_value, "kernel %s: only kernelParams are supported here", name);
  }
  Command command;
  if (function->args_bytes > sizeof command.args || function->name.size() >= sizeof command.kernel) {
    return misuse(invalid_value, "kernel %s has arguments of %u bytes", name, function->args_bytes);
  }
  command.kind = CommandKind::launch;
  command.grid_x = grid.x;
  command.grid_y = grid.y;
  command.threads = block.x;
  command.shared_bytes = shared_bytes;
  command.args_bytes = function->args_bytes;
  std::memcpy(command.kernel, name, function->name.size());
  std::memcpy(command.args, parameters[0], function->args_bytes);
  return submit(*stream, command);
}

}  // namespace strict
