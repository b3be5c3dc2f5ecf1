#include "runtime/workspace.h"

#include "ops/matmul_bytes.h"

namespace ingot::runtime {

size_t workspace_bytes(const Runtime& runtime) {
  return runtime.device->host_visible() ? runtime.threads->workspace_bytes() : ops::matmul_library_bytes;
}

}  // namespace ingot::runtime
