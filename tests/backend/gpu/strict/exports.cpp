// The functions of libcuda or, with STRICT_HIP, of libamdhip64 that Ingot loads. A type with the same size and calling
// convention in both is written once: handles and device addresses are pointers, enumerations int. Behind them are the
// functions of library_call.h.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/backend/gpu/strict/driver.h"

#if defined(STRICT_HIP)
#define NAME(cuda, hip) hip
#else
#define NAME(cuda, hip) cuda
#endif
#define EXPORT(cuda, hip) extern "C" __attribute__((visibility("default"))) int NAME(cuda, hip)

namespace {

using namespace strict;

constexpr bool is_hip = NAME(false, true);

// The GPU's executable lies beside this library.
std::string gpu_executable() {
  Dl_info library{};
  dladdr(reinterpret_cast<const void*>(&gpu_executable), &library);
  return std::filesystem::path(library.dli_fname).replace_filename("strict_gpu");
}

// Never destroyed: threads of the program may call until it ends.
Driver& driver() {
  static auto* const only = new Driver(is_hip, gpu_executable().c_str());
  return *only;
}

bool is_device(int handle) {
  const int ordinal = handle - Driver::first_device;
  return ordinal >= 0 && ordinal < driver().settings().devices;
}

}  // namespace

EXPORT(cuInit, hipInit)(unsigned flags) { return flags == 0 ? driver().status() : invalid_value; }
EXPORT(cuDriverGetVersion, hipRuntimeGetVersion)(int* version) {
  const Settings& settings = driver().settings();
  *version = is_hip ? settings.version_major * 10'000'000 + settings.version_minor * 100'000
                    : settings.version_major * 1000 + settings.version_minor * 10;
  return success;
}
EXPORT(cuDeviceGetCount, hipGetDeviceCount)(int* count) {
  *count = driver().settings().devices;
  return driver().status();
}
EXPORT(cuDeviceGet, hipDeviceGet)(int* device, int ordinal) {
  *device = Driver::first_device + ordinal;
  return is_device(*device) ? success : invalid_device;
}
EXPORT(cuDeviceGetName, hipDeviceGetName)(char* name, int bytes, int device) {
  if (!is_device(device)) return invalid_device;
  std::snprintf(name, static_cast<size_t>(bytes), "Strict GPU %d", device - Driver::first_device);
  return success;
}
EXPORT(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t* bytes, int device) {
  *bytes = driver().settings().memory;
  return is_device(device) ? success : invalid_device;
}
EXPORT(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)(char* address, int bytes, int device) {
  if (!is_device(device)) return invalid_device;
  const int written = std::snprintf(address, static_cast<size_t>(bytes), "0000:%02x:00.0", device);
  return written < bytes ? success : invalid_value;
}
#if defined(STRICT_HIP)
EXPORT(, hipSetDevice)(int ordinal) { return driver().set_device(ordinal); }
// hipDeviceProp_tR0600: 1,472 bytes, name first, gcnArchName from byte 1,160 on.
EXPORT(, hipGetDevicePropertiesR0600)(char* properties, int ordinal) {
  if (!is_device(ordinal + Driver::first_device)) return invalid_device;
  std::memset(properties, 0, 1472);
  std::snprintf(properties, 256, "Strict GPU %d", ordinal);
  std::snprintf(properties + 1160, 256, "%s:sramecc+:xnack-", driver().settings().architecture.c_str());
  return success;
}
extern "C" __attribute__((visibility("default"))) const char* hipGetErrorName(int status) {
  return status_name(status, true);
}
#else
EXPORT(cuDeviceGetAttribute, )(int* value, int attribute, int device) {
  const int capability = std::atoi(driver().settings().architecture.c_str() + std::strlen("sm_"));
  *value = attribute == 75 ? capability / 10 : capability % 10;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
  return is_device(device) && (attribute == 75 || attribute == 76) ? success : invalid_value;
}
EXPORT(cuDevicePrimaryCtxRetain, )(void** context, int device) { return driver().retain_context(context, device); }
EXPORT(cuCtxSetCurrent, )(void* context) { return driver().set_context(context); }
EXPORT(cuGetErrorName, )(int status, const char** name) {
  *name = status_name(status, false);
  return *name != nullptr ? success : invalid_value;
}
EXPORT(cuFuncSetAttribute, )(void* function, int attribute, int value) {
  return driver().set_function_attribute(function, attribute, value);
}
#endif
EXPORT(cuMemGetInfo_v2, hipMemGetInfo)(size_t* free, size_t* total) { return driver().memory_info(free, total); }
EXPORT(cuMemAlloc_v2, hipMalloc)(void** data, size_t bytes) { return driver().allocate(data, bytes); }
EXPORT(cuMemFree_v2, hipFree)(void* data) { return driver().release(data); }
EXPORT(cuMemHostAlloc, hipHostMalloc)(void** data, size_t bytes, unsigned flags) {
  return driver().allocate_host(data, bytes, flags);
}
EXPORT(cuMemFreeHost, hipHostFree)(void* data) { return driver().release_host(data); }
EXPORT(cuMemsetD8Async, hipMemsetD8Async)(void* data, unsigned char value, size_t bytes, void* stream) {
  return driver().fill(data, value, bytes, stream);
}
EXPORT(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(void* to, const void* from, size_t bytes, void* stream) {
  return driver().copy_to_device(to, from, bytes, stream);
}
EXPORT(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void* to, const void* from, size_t bytes, void* stream) {
  return driver().copy_to_host(to, from, bytes, stream);
}
EXPORT(cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange)(int* lowest, int* highest) {
  return driver().stream_priorities(lowest, highest);
}
EXPORT(cuStreamCreateWithPriority, hipStreamCreateWithPriority)(void** stream, unsigned flags, int priority) {
  return driver().make_stream(stream, flags, priority);
}
EXPORT(cuStreamDestroy_v2, hipStreamDestroy)(void* stream) { return driver().destroy_stream(stream); }
EXPORT(cuStreamSynchronize, hipStreamSynchronize)(void* stream) { return driver().synchronize_stream(stream); }
EXPORT(cuStreamWaitEvent, hipStreamWaitEvent)(void* stream, void* event, unsigned flags) {
  return driver().wait_in_stream(stream, event, flags);
}
EXPORT(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void* stream, int mode) {
  return driver().begin_capture(stream, mode);
}
EXPORT(cuStreamEndCapture, hipStreamEndCapture)(void* stream, void** graph) {
  return driver().end_capture(stream, graph);
}
EXPORT(cuEventCreate, hipEventCreateWithFlags)(void** event, unsigned flags) {
  return driver().make_event(event, flags);
}
EXPORT(cuEventDestroy_v2, hipEventDestroy)(void* event) { return driver().destroy_event(event); }
EXPORT(cuEventRecord, hipEventRecord)(void* event, void* stream) { return driver().record(event, stream); }
EXPORT(cuEventQuery, hipEventQuery)(void* event) { return driver().query(event); }
EXPORT(cuEventSynchronize, hipEventSynchronize)(void* event) { return driver().synchronize_event(event); }
EXPORT(cuGraphGetNodes, hipGraphGetNodes)(void* graph, void** nodes, size_t* count) {
  return driver().graph_nodes(graph, nodes, count);
}
EXPORT(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)
(void** executable, void* graph, unsigned long long flags) { return driver().instantiate(executable, graph, flags); }
EXPORT(cuGraphDestroy, hipGraphDestroy)(void* graph) { return driver().destroy_graph(graph); }
EXPORT(cuGraphLaunch, hipGraphLaunch)(void* executable, void* stream) {
  return driver().launch_graph(executable, stream);
}
EXPORT(cuGraphExecDestroy, hipGraphExecDestroy)(void* executable) { return driver().destroy_executable(executable); }
EXPORT(cuModuleLoadData, hipModuleLoadData)(void** module, const void* image) {
  return driver().load_module(module, image);
}
EXPORT(cuModuleGetFunction, hipModuleGetFunction)(void** function, void* module, const char* name) {
  return driver().find_function(function, module, name);
}
EXPORT(cuLaunchKernel, hipModuleLaunchKernel)
(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
 unsigned block_z, unsigned shared_bytes, void* stream, void** parameters, void** extra) {
  return driver().launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream,
                         parameters, extra);
}

#define LIBRARIES_EXPORT extern "C" __attribute__((visibility("default"))) int
LIBRARIES_EXPORT strict_current_device(int* device) { return driver().current_device(device); }
LIBRARIES_EXPORT strict_may_allocate(const char* what) { return driver().may_allocate(what); }
LIBRARIES_EXPORT strict_share(void** copy, const void* data, size_t bytes) { return driver().share(copy, data, bytes); }
LIBRARIES_EXPORT strict_call_library(const strict::LibraryCall* call) { return driver().call_library(*call); }
