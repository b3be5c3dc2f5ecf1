// A vendor's fused attention (cuDNN's), bound when it is first asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/gpu/runtime/vendor_library.h"

namespace ingot::gpu {

// Causal attention over packed sequences, in bf16 (ops/attention.h): rows of q and out have heads * d elements, those
// of k and v kv_heads * d. lse [heads, tokens] may be null.
struct PackedAttention {
  void* out;
  float* lse;
  const void* q;
  const void* k;
  const void* v;
  const int32_t* offsets;  // [sequences + 1]
  int64_t tokens, sequences, heads, kv_heads, d;
  int64_t window;  // 0: all
  float scale;
};

class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  // Why it does not take the call; empty when it does. Calls that differ in pointers and scale alone are answered
  // alike.
  virtual std::string decline(const PackedAttention& call) = 0;
  // Starts a call that `decline` takes, in the driver's stream. `workspace`: ops::attention_library_bytes of device
  // memory, the call's own until the stream has done it.
  virtual void run(const PackedAttention& call, void* workspace, void* stream) = 0;
};

// For the device that is current in the driver. A library that cannot be used declines every call, saying why.
std::unique_ptr<AttentionLibrary> open_cudnn();

// Answers `decline` for a device that need not be there, given its properties as cuDNN's JSON; it runs nothing.
std::unique_ptr<AttentionLibrary> open_cudnn_for(const std::string& device_json);

// What `ingot devices` says. INGOT_CUDNN_LIBRARY names a file in place of those that are looked for.
LibraryFacts facts_of_cudnn();

}  // namespace ingot::gpu
