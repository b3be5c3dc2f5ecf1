// cuDNN's backend API, in which everything is a descriptor with attributes (names as in its documentation without
// `cudnnBackend`). Declared here so that no CUDA header is needed; the numbers are those of cuDNN 9's documentation.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_library.h"

namespace ingot::gpu::cudnn {

using Status = int;  // 0: success

struct Functions {
  explicit Functions(const SharedLibrary& library) {
    library.bind(GetVersion, "cudnnGetVersion");
    library.bind(GetCudartVersion, "cudnnGetCudartVersion");
    library.bind(GetLastErrorString, "cudnnGetLastErrorString");
    library.bind(Create, "cudnnCreate");
    library.bind(Destroy, "cudnnDestroy");
    library.bind(SetStream, "cudnnSetStream");
    library.bind(CreateDescriptor, "cudnnBackendCreateDescriptor");
    library.bind(DestroyDescriptor, "cudnnBackendDestroyDescriptor");
    library.bind(SetAttribute, "cudnnBackendSetAttribute");
    library.bind(GetAttribute, "cudnnBackendGetAttribute");
    library.bind(Finalize, "cudnnBackendFinalize");
    library.bind(Execute, "cudnnBackendExecute");
  }

  size_t (*GetVersion)();
  size_t (*GetCudartVersion)();  // 12090: CUDA 12.9
  void (*GetLastErrorString)(char*, size_t);
  Status (*Create)(void**);
  Status (*Destroy)(void*);
  Status (*SetStream)(void*, void*);
  Status (*CreateDescriptor)(int, void**);
  Status (*DestroyDescriptor)(void*);
  Status (*SetAttribute)(void*, int attribute, int type, int64_t count, const void*);
  Status (*GetAttribute)(void*, int attribute, int type, int64_t count, int64_t* returned, void*);
  Status (*Finalize)(void*);
  Status (*Execute)(void*, void*, void*);

  // Throws ErrorKind::unavailable with the library's own error message unless the status is 0.
  void check(Status status, const char* what) const;
};

// Kinds of descriptors (cudnnBackendDescriptorType_t).
enum Kind : int {
  pointwise = 0,
  engine = 2,
  engine_config = 3,
  heuristic = 4,
  plan = 5,
  knob_choice = 7,
  pointwise_operation = 13,
  graph = 15,
  variant_pack = 16,
  tensor = 17,
  matmul = 18,
  matmul_operation = 19,
  reduction = 21,
  reduction_operation = 22,
  device_properties = 38,
  sdpa_forward = 41,
  band_mask = 44,
};

// Types of attributes (cudnnBackendAttributeType_t).
enum Type : int {
  handle_type = 0,
  data_type_type = 1,
  boolean_type = 2,
  int64_type = 3,
  pointer_type = 6,
  heuristic_mode_type = 8,
  knob_type_type = 9,
  pointwise_mode_type = 14,
  descriptor_type = 15,
  reduction_operator_type = 18,
  char_type = 24,
};

// Data types (cudnnDataType_t).
enum Data : int { f32 = 0, i32 = 4, bf16 = 9, boolean = 11 };

class Descriptor {
 public:
  Descriptor(const Functions& functions, Kind kind);
  Descriptor(Descriptor&& other) noexcept
      : functions_(other.functions_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(functions_, other.functions_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor();

  void* get() const { return descriptor_; }
  Descriptor& set(int attribute, Type type, int64_t count, const void* values);
  Descriptor& set_integers(int attribute, const std::vector<int64_t>& values);
  Descriptor& set_choice(int attribute, Type type, int value);
  Descriptor& set_flag(int attribute);
  Descriptor& set_pointers(int attribute, Type type, const std::vector<void*>& values);
  Descriptor& set_descriptors(int attribute, const std::vector<const Descriptor*>& values);
  Descriptor& set_descriptor(int attribute, const Descriptor& value) { return set_descriptors(attribute, {&value}); }
  // Finalizes the descriptor. ErrorKind::unavailable when the library does not support what it describes.
  void finalize(const char* what);

  int64_t integer(int attribute) const;
  int choice(int attribute, Type type) const;
  // Up to `max_count` descriptors of the attribute.
  std::vector<Descriptor> descriptors(int attribute, Kind kind, size_t max_count) const;

 private:
  const Functions* functions_;
  void* descriptor_ = nullptr;
};

}  // namespace ingot::gpu::cudnn
