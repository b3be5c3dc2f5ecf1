// The strict driver, in whose GPU the ranks meet.
#include "tests/backend/gpu/fakes/collectives_driver.h"

namespace fake {

bool enqueue(int device, void* stream, const CollectiveGroup& group, const std::vector<DeviceMemory>& memory) {
  return launch(device, stream, group, memory);
}

}  // namespace fake
