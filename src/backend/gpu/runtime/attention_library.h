// A vendor's fused attention (cuDNN's); the library is loaded on first use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

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
  int64_t window;  // 0: no window
  float scale;
  // Where AttentionLibrary::needs_tables (backend/gpu/attention/sequence_tables.h).
  const int32_t* lengths = nullptr;     // [sequences]
  const int32_t* q_offsets = nullptr;   // [sequences + 1]
  const int32_t* kv_offsets = nullptr;  // [sequences + 1]
};

inline constexpr size_t attention_workspace_bytes = size_t{63} << 10;

class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  // Why the library cannot run the call; empty if it can. The answer does not depend on the pointers or the scale, and
  // is valid until the next call.
  virtual std::string_view decline(const PackedAttention& call) = 0;
  // Whether `run` reads the tables of a call.
  virtual bool needs_tables() const { return false; }
  // Starts a call that `decline` accepts, in the driver's stream. `workspace`: attention_workspace_bytes of device
  // memory, reserved for the call until the stream has run it.
  virtual void run(const PackedAttention& call, void* workspace, void* stream) = 0;
};

// For the driver's current device. If the library cannot be used, it declines every call with the reason.
std::unique_ptr<AttentionLibrary> open_cudnn();

// Only for `decline`: takes the device's properties as cuDNN's JSON, so the device need not exist. Cannot run a call.
std::unique_ptr<AttentionLibrary> open_cudnn_for(const std::string& device_json);

// Facts for `ingot devices`. INGOT_CUDNN_LIBRARY names a library file to load instead of the default names.
LibraryInfo info_of_cudnn();

}  // namespace ingot::gpu
