// A driver of two devices in host memory with one kernel, which doubles floats: CUDA's driver API or, with FAKE_HIP,
// HIP's module API. Written from their documentation, not from our binding.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if defined(FAKE_HIP)
#define NAME(cuda, hip) hip
#define STATUS_NAME "hipErrorOutOfMemory"
#else
#define NAME(cuda, hip) cuda
#define STATUS_NAME "CUDA_ERROR_OUT_OF_MEMORY"
#endif
#define EXPORT(cuda, hip) extern "C" __attribute__((visibility("default"))) int NAME(cuda, hip)

namespace {

constexpr int success = 0;
constexpr int invalid_value = 1;
constexpr int out_of_memory = 2;
constexpr int invalid_device = 101;
constexpr int no_binary_for_gpu = 209;
constexpr int not_found = 500;
constexpr int not_ready = 600;
constexpr size_t memory = 1 << 20;

struct Args {
  float* data;
  int64_t n;
};
using Launches = std::vector<Args>;

struct Stream {
  Launches* recorded = nullptr;  // null: launches run
};
struct Event {
  int queries = 0;  // an event is complete from the second query on
};

[[maybe_unused]] int contexts[2];

void run(const Args& args) {
  for (int64_t i = 0; i < args.n; ++i) args.data[i] *= 2;
}

}  // namespace

EXPORT(cuInit, hipInit)(unsigned flags) { return flags == 0 ? success : invalid_value; }
EXPORT(cuDriverGetVersion, hipRuntimeGetVersion)(int* version) {
  *version = NAME(13010, 60342134);
  return success;
}
EXPORT(cuDeviceGetCount, hipGetDeviceCount)(int* count) {
  *count = 2;
  return success;
}
EXPORT(cuDeviceGet, hipDeviceGet)(int* device, int ordinal) {
  if (ordinal < 0 || ordinal > 1) return invalid_device;
  *device = 70 + ordinal;  // a handle differs from the ordinal
  return success;
}
EXPORT(cuDeviceGetName, hipDeviceGetName)(char* name, int bytes, int device) {
  const std::string text = "Fake " + std::to_string(device);
  std::strncpy(name, text.c_str(), static_cast<size_t>(bytes));
  return success;
}
EXPORT(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t* bytes, int device) {
  *bytes = memory * static_cast<size_t>(device);
  return success;
}
EXPORT(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)(char* address, int bytes, int device) {
  const std::string text = device == 70 ? NAME("0000:3B:00.0", "0000:3b:00.0") : "0001:af:1f.1";
  if (static_cast<size_t>(bytes) <= text.size()) return invalid_value;
  std::strcpy(address, text.c_str());
  return success;
}
#if defined(FAKE_HIP)
EXPORT(, hipSetDevice)(int ordinal) { return ordinal == 0 || ordinal == 1 ? success : invalid_device; }
// hipDeviceProp_tR0600: 1,472 bytes, name first, gcnArchName from byte 1,160 on.
EXPORT(, hipGetDevicePropertiesR0600)(char* properties, int ordinal) {
  std::memset(properties, 0, 1472);
  std::strcpy(properties, "Fake gfx");
  std::strcpy(properties + 1160, "gfx90a:sramecc+:xnack-");
  return ordinal == 0 || ordinal == 1 ? success : invalid_device;
}
extern "C" __attribute__((visibility("default"))) const char* hipGetErrorName(int status) {
  return status == out_of_memory ? STATUS_NAME : "hipErrorOther";
}
#else
EXPORT(cuDeviceGetAttribute, )(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : 0;  // compute capability 9.0
  return attribute == 75 || attribute == 76 ? success : invalid_value;
}
EXPORT(cuDevicePrimaryCtxRetain, )(void** context, int device) {
  *context = &contexts[device - 70];
  return success;
}
EXPORT(cuCtxSetCurrent, )(void* context) {
  return context == &contexts[0] || context == &contexts[1] ? success : invalid_value;
}
EXPORT(cuGetErrorName, )(int status, const char** name) {
  *name = status == out_of_memory ? STATUS_NAME : nullptr;
  return status == out_of_memory ? success : invalid_value;
}
EXPORT(cuFuncSetAttribute, )(void*, int attribute, int value) {
  return attribute == 8 && value <= 232448 ? success : invalid_value;
}
#endif
EXPORT(cuMemGetInfo_v2, hipMemGetInfo)(size_t* free, size_t* total) {
  *free = memory / 2;
  *total = memory;
  return success;
}
EXPORT(cuMemAlloc_v2, hipMalloc)(void** data, size_t bytes) {
  if (bytes > memory) return out_of_memory;
  *data = std::malloc(bytes);
  std::memset(*data, 0xff, bytes);
  return success;
}
EXPORT(cuMemFree_v2, hipFree)(void* data) {
  std::free(data);
  return success;
}
EXPORT(cuMemHostAlloc, hipHostMalloc)(void** data, size_t bytes, unsigned flags) {
  *data = std::malloc(bytes);
  return flags == 0 ? success : invalid_value;
}
EXPORT(cuMemFreeHost, hipHostFree)(void* data) {
  std::free(data);
  return success;
}
EXPORT(cuMemsetD8Async, hipMemsetD8Async)(void* data, unsigned char value, size_t bytes, void*) {
  std::memset(data, value, bytes);
  return success;
}
EXPORT(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(void* to, const void* from, size_t bytes, void*) {
  std::memcpy(to, from, bytes);
  return success;
}
EXPORT(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void* to, const void* from, size_t bytes, void*) {
  std::memcpy(to, from, bytes);
  return success;
}
EXPORT(cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange)(int* lowest, int* highest) {
  *lowest = NAME(0, 1);
  *highest = NAME(-5, -1);
  return success;
}
EXPORT(cuStreamCreateWithPriority, hipStreamCreateWithPriority)(Stream** stream, unsigned flags, int priority) {
  *stream = new Stream;
  const bool known = priority == 0 || priority == NAME(-5, -1);
  return flags == 1 && known ? success : invalid_value;  // CU_STREAM_NON_BLOCKING
}
EXPORT(cuStreamDestroy_v2, hipStreamDestroy)(Stream* stream) {
  delete stream;
  return success;
}
EXPORT(cuStreamSynchronize, hipStreamSynchronize)(Stream*) { return success; }
EXPORT(cuStreamWaitEvent, hipStreamWaitEvent)(Stream*, Event*, unsigned flags) {
  return flags == 0 ? success : invalid_value;
}
EXPORT(cuStreamBeginCapture_v2, hipStreamBeginCapture)(Stream* stream, int mode) {
  stream->recorded = new Launches;
  return mode == 1 ? success : invalid_value;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
}
EXPORT(cuStreamEndCapture, hipStreamEndCapture)(Stream* stream, Launches** graph) {
  *graph = stream->recorded;
  stream->recorded = nullptr;
  return success;
}
EXPORT(cuEventCreate, hipEventCreateWithFlags)(Event** event, unsigned flags) {
  *event = new Event;
  return flags == 2 ? success : invalid_value;  // CU_EVENT_DISABLE_TIMING
}
EXPORT(cuEventDestroy_v2, hipEventDestroy)(Event* event) {
  delete event;
  return success;
}
EXPORT(cuEventRecord, hipEventRecord)(Event* event, Stream*) {
  event->queries = 0;
  return success;
}
EXPORT(cuEventQuery, hipEventQuery)(Event* event) { return event->queries++ == 0 ? not_ready : success; }
EXPORT(cuEventSynchronize, hipEventSynchronize)(Event*) { return success; }
EXPORT(cuGraphGetNodes, hipGraphGetNodes)(Launches* graph, void** nodes, size_t* count) {
  *count = graph->size();
  return nodes == nullptr ? success : invalid_value;
}
EXPORT(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(Launches** ready, Launches* graph,
                                                                  unsigned long long flags) {
  *ready = new Launches(*graph);
  return flags == 0 ? success : invalid_value;
}
EXPORT(cuGraphDestroy, hipGraphDestroy)(Launches* graph) {
  delete graph;
  return success;
}
EXPORT(cuGraphExecDestroy, hipGraphExecDestroy)(Launches* graph) {
  delete graph;
  return success;
}
EXPORT(cuGraphLaunch, hipGraphLaunch)(Launches* graph, Stream*) {
  for (const Args& args : *graph) run(args);
  return success;
}
EXPORT(cuModuleLoadData, hipModuleLoadData)(const void** module, const char* image) {
  *module = image;
  return std::strcmp(image, "of another device") == 0 ? no_binary_for_gpu
         : std::strcmp(image, "broken") == 0          ? invalid_value
                                                      : success;
}
EXPORT(cuModuleGetFunction, hipModuleGetFunction)(const void** function, const void* module, const char* name) {
  *function = module;
  return std::strcmp(name, "twice") == 0 ? success : not_found;
}
EXPORT(cuLaunchKernel, hipModuleLaunchKernel)(void*, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                                              unsigned, unsigned shared, Stream* stream, void** parameters, void**) {
  if (x != 3 || y != 2 || z != 1 || threads != 64 || shared != 512) return invalid_value;
  const Args args = *static_cast<const Args*>(parameters[0]);
  if (stream->recorded != nullptr) {
    stream->recorded->push_back(args);
  } else {
    run(args);
  }
  return success;
}
