// What runs the operations of the stand-in for NCCL and RCCL.
#pragma once

#include <vector>

#include "tests/backend/gpu/fakes/collective.h"
#include "tests/backend/gpu/fakes/driver.h"

namespace fake {

// Appends the group to the stream. Refuses what launch() does (driver.h).
bool enqueue(int device, void* stream, const CollectiveGroup& group, const std::vector<DeviceMemory>& memory);

}  // namespace fake
