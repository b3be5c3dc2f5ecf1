// A call of a plan of the stand-in for cuDNN, by value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake {

struct CudnnCall {
  static constexpr const char* name = "cuDNN graph";
  static constexpr size_t max_tensors = 32;
  static constexpr size_t workspace_bytes = 17408;  // of every plan

  const std::byte* graph;  // packed (cudnn_graph.h), in memory that the device can read
  void* workspace;         // overwritten
  size_t tensors;
  int64_t uid[max_tensors];
  void* pointer[max_tensors];
  bool by_value[max_tensors];
  int32_t value[max_tensors];  // the bits of a tensor that is passed by value

  void run() const;
};

}  // namespace fake
