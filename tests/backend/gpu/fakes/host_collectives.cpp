// Simulated devices, whose streams belong to the program.
#include <algorithm>
#include <memory>

#include "backend/gpu/sim/host_stream.h"
#include "tests/backend/gpu/fakes/collectives_driver.h"

extern "C" __attribute__((visibility("default"))) const int ingot_simulates_nccl;
const int ingot_simulates_nccl = 1;

namespace fake {

bool enqueue(int, void* stream, const CollectiveGroup& group, const std::vector<DeviceMemory>&) {
  auto* host = static_cast<ingot::gpu::sim::HostStream*>(stream);
  bool begins = true;  // now, and not when the stream comes to it
  const auto is_message = [](const CollectiveGroup::Operation& each) { return each.call.is_message(); };
  if (std::all_of(group.operations, group.operations + group.count, is_message)) {
    begins = host->prepare();
  } else {
    host->finish();
  }
  const auto progress = std::make_shared<CollectiveProgress>(group);
  if (begins) progress->expect();
  host->add([progress] {
    progress->expect();
    return progress->advance();
  });
  return true;
}

}  // namespace fake
