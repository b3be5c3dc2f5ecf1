// The memory of ops whose size does not depend on shapes.
#pragma once

#include "runtime/runtime.h"

namespace ingot::runtime {

// Bytes: of the thread pool on a CPU (ThreadPool::Workspace), of vendors' libraries on a GPU, where they are allocated
// with the library (ops::matmul_library_bytes).
size_t workspace_bytes(const Runtime& runtime);

}  // namespace ingot::runtime
