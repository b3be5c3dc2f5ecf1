// Replaces the device code of a build in the executable that runs on the strict driver.
#include "backend/gpu/runtime/code_objects.h"

#include "tests/backend/gpu/strict/test_code.h"

namespace ingot::gpu {

std::span<const CodeObject> code_objects() { return test_code(); }

}  // namespace ingot::gpu
