// A stand-in for cuDNN (driver.h), whose descriptors store their attributes. Written from the documentation of the
// backend API, not from our binding. Its engine supports head sizes up to 128. INGOT_FAKE_CUDNN_VERSION is its version,
// 92803 by default; SDPA exists as in that version.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/backend/gpu/fakes/cudnn_call.h"
#include "tests/backend/gpu/fakes/cudnn_graph.h"
#include "tests/backend/gpu/fakes/driver.h"
#include "tests/backend/gpu/fakes/live_objects.h"

namespace {

using namespace fake::cudnn;

constexpr int success = 0;
constexpr int not_initialized = 1001;
constexpr int bad_param = 2000;
constexpr int not_supported = 3000;
constexpr int execution_failed = 5000;

thread_local std::string last_error;  // returned by cudnnGetLastErrorString

// Bytes of one element of an attribute type.
size_t type_bytes(int type) {
  switch (type) {
    case 2: return 1;  // boolean
    case 1:
    case 4:
    case 8:
    case 9:
    case 14:
    case 18: return 4;  // data type, float, heuristic, knob, pointwise mode, reduction operator
    case 24: return 1;  // char
    default: return 8;  // handle, int64, pointer, descriptor
  }
}

size_t version() {
  const char* set = std::getenv("INGOT_FAKE_CUDNN_VERSION");
  return set != nullptr ? static_cast<size_t>(std::atoi(set)) : 92803;
}

int refuse(int status, const char* why) {
  last_error = why;
  return status;
}

// What a call of the plan needs besides the caller's pointers.
struct Plan {
  const std::byte* graph = nullptr;  // packed and shared
  std::map<int64_t, size_t> bytes;   // at least, by unique id, of the tensors in device memory
  std::set<int64_t> values;          // the unique ids of tensors that are passed by value
};

struct Handle {
  int device = 0;
  void* stream = nullptr;
};

fake::LiveObjects<Node> nodes;
fake::LiveObjects<Handle> handles;
fake::LiveObjects<Plan> plans;
std::map<const Node*, const Plan*> plan_of;  // by final descriptor
std::mutex plan_of_mutex;

bool lives(const Node* node) {
  return nodes.has(node) || fake::misuse("%p is no descriptor, or was destroyed", static_cast<const void*>(node));
}
bool lives(const Handle* handle) {
  return handles.has(handle) || fake::misuse("%p is no handle, or was destroyed", static_cast<const void*>(handle));
}

// Null where the device cannot be given the graph.
const Plan* make_plan(const Node& graph) {
  Plan made;
  const std::vector<std::byte> bytes = fake::cudnn::packed(graph);
  made.graph = static_cast<const std::byte*>(fake::share(bytes.data(), bytes.size()));
  if (made.graph == nullptr) return nullptr;
  fake::cudnn::visit_all(graph, [&](const Node& node) {
    if (node.kind != tensor || node.has(907)) return;
    const auto uid = node.one<int64_t>(906);
    if (node.has(908)) {
      made.values.insert(uid);
      return;
    }
    // How long the tensors are whose sequences begin at offsets, only the device knows.
    constexpr size_t width = 4;
    made.bytes[uid] = node.has(913) ? 1 : width * static_cast<size_t>(node.all<int64_t>(902)[0]);
  });
  return plans.add(std::move(made));
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT size_t cudnnGetVersion() { return version(); }
EXPORT size_t cudnnGetCudartVersion() { return 12090; }
EXPORT void cudnnGetLastErrorString(char* text, size_t bytes) {
  std::strncpy(text, last_error.c_str(), bytes - 1);
  text[bytes - 1] = '\0';
}
EXPORT int cudnnCreate(void** handle) {
  const int device = fake::current_device();
  if (device < 0 || !fake::may_allocate("a library's handle is made")) return not_initialized;
  *handle = handles.add({device, nullptr});
  return success;
}
EXPORT int cudnnDestroy(void* handle) { return handles.remove(handle) ? success : bad_param; }
EXPORT int cudnnSetStream(Handle* handle, void* stream) {
  if (!lives(handle)) return bad_param;
  handle->stream = stream;
  return success;
}
EXPORT int cudnnBackendCreateDescriptor(int kind, Node** node) {
  *node = nodes.add({kind, false, {}});
  return success;
}
EXPORT int cudnnBackendDestroyDescriptor(Node* node) { return nodes.remove(node) ? success : bad_param; }
EXPORT int cudnnBackendSetAttribute(Node* node, int attribute, int type, int64_t count, const void* values) {
  if (!lives(node)) return refuse(bad_param, "no descriptor");
  if (node->final) return refuse(bad_param, "the descriptor is final");
  const auto* bytes = static_cast<const std::byte*>(values);
  const auto all = static_cast<size_t>(count);
  node->attributes[attribute] = {type, all, {bytes, bytes + all * type_bytes(type)}};
  return success;
}
EXPORT int cudnnBackendFinalize(Node* node) {
  if (!lives(node)) return refuse(bad_param, "no descriptor");
  for (const auto& [attribute, values] : node->attributes) {
    if (values.type != fake::cudnn::descriptor_type) continue;
    for (const Node* each : node->all<const Node*>(attribute)) {
      if (!lives(each) || !each->final) return refuse(bad_param, "an attribute is a descriptor that is not final");
    }
  }
  if ((node->kind == sdpa || node->kind == band) && version() < 92400)
    return refuse(not_supported, "no such operation in this version");
  if (node->kind == pointwise) {
    // Comparisons are computed as booleans (11), and indices as integers (4).
    const Node& kind = node->node(750);
    const int mode = kind.one<int>(0), compute = kind.one<int>(1);
    const int wanted = mode >= 300 && mode <= 400 ? 11 : mode == 501 ? 4 : compute;
    if (compute != wanted || (wanted != 0 && node->node(753).one<int>(901) != wanted))
      return refuse(bad_param, "a pointwise operation in another type than its result");
  }
  if (node->kind == sdpa) {
    for (const int attribute_id : {2800, 2801, 2802, 2803, 2805, 2811, 2812, 2813, 2820, 2821}) {
      if (!node->has(attribute_id)) return refuse(bad_param, "attention lacks an attribute");
    }
    // The inner graph must begin at the scores tensor (2812) and end at the masked one (2813).
    const auto masks = node->node(2811).all<const Node*>(801);
    if (masks.front()->node(3000).one<int64_t>(906) != node->one<int64_t>(2812) ||
        masks.back()->node(3006).one<int64_t>(906) != node->one<int64_t>(2813)) {
      return refuse(bad_param, "the graph inside has other ends");
    }
  }
  if (node->kind == plan) {
    if (!lives(node->one<Handle*>(400))) return refuse(bad_param, "no handle");
    const Plan* made = make_plan(node->node(401).node(300).node(1300));
    if (made == nullptr) return refuse(not_initialized, "the device has no memory for a plan");
    const std::scoped_lock lock(plan_of_mutex);
    plan_of[node] = made;
  }
  node->final = true;
  return success;
}
EXPORT int cudnnBackendGetAttribute(const Node* node, int attribute, int, int64_t count, int64_t* returned,
                                    void* values) {
  *returned = 0;
  if (!lives(node)) return refuse(bad_param, "no descriptor");
  if (node->kind == heuristic && attribute == 202) {
    const Node& operation = operation_of(node->node(201));
    if ((operation.kind != sdpa && operation.kind != matmul) || count < 1) return success;
    if (operation.node(operation.kind == sdpa ? 2800 : 1520).all<int64_t>(902)[3] > 128) return success;
    Node* made = static_cast<Node**>(values)[0];
    made->attributes = {{201, node->attributes.at(201)}};
    made->final = true;
    *returned = 1;
  } else if (node->kind == config && attribute == 300) {
    *returned = 1;
  } else if (node->kind == engine && attribute == 1301) {
    const int64_t index = 9;
    std::memcpy(values, &index, sizeof index);
    *returned = 1;
  } else if (node->kind == config && attribute == 302) {
    *returned = 1;
  } else if (node->kind == knob && attribute == 600) {
    const int type = 40;
    std::memcpy(values, &type, sizeof type);
    *returned = 1;
  } else if (node->kind == knob && attribute == 601) {
    const int64_t value = 3;
    std::memcpy(values, &value, sizeof value);
    *returned = 1;
  } else if (node->kind == config && attribute == 303) {
    // Only an engine of the library's choice with its one knob is accepted.
    if (node->node(300).one<int64_t>(1301) != 9 || node->node(302).one<int64_t>(601) != 3) return not_supported;
    const auto needed = static_cast<int64_t>(fake::CudnnCall::workspace_bytes);
    std::memcpy(values, &needed, sizeof needed);
    *returned = 1;
  } else {
    return refuse(bad_param, "no such attribute");
  }
  return success;
}
EXPORT int cudnnBackendExecute(Handle* handle, const Node* ready, const Node* given) {
  if (!lives(handle) || !lives(ready) || !lives(given)) return refuse(bad_param, "no handle or descriptor");
  if (ready->kind != plan || given->kind != pack || !ready->final || !given->final ||
      ready->one<Handle*>(400) != handle)
    return refuse(bad_param, "no plan of this handle, or no final descriptors");
  const Plan* made = nullptr;
  {
    const std::scoped_lock lock(plan_of_mutex);
    made = plan_of.at(ready);
  }
  fake::CudnnCall call{};
  call.graph = made->graph;
  call.workspace = given->one<void*>(1003);
  if (call.workspace == nullptr || reinterpret_cast<uintptr_t>(call.workspace) % 16 != 0)
    return refuse(bad_param, "no workspace, or none that is aligned to 16 bytes");
  std::vector<fake::DeviceMemory> memory = {{call.workspace, call.workspace_bytes}};
  const auto ids = given->all<int64_t>(1000);
  const auto pointers = given->all<void*>(1001);
  if (ids.size() > call.max_tensors || pointers.size() != ids.size()) return refuse(bad_param, "so many tensors");
  size_t& count = call.tensors;
  for (; count < ids.size(); ++count) {
    call.uid[count] = ids[count];
    call.by_value[count] = made->values.count(ids[count]) > 0;
    if (call.by_value[count]) {  // read at once, from host memory
      std::memcpy(&call.value[count], pointers[count], sizeof call.value[count]);
      continue;
    }
    const auto needed = made->bytes.find(ids[count]);
    if (needed == made->bytes.end()) return refuse(bad_param, "a tensor that the graph has not");
    call.pointer[count] = pointers[count];
    memory.push_back({pointers[count], needed->second});
  }
  if (count != made->values.size() + made->bytes.size()) return refuse(bad_param, "not all tensors have data");
  return fake::launch(handle->device, handle->stream, call, memory) ? success : execution_failed;
}
