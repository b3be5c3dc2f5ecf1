#include "backend/gpu/arch/tuning.h"

#include <string>

namespace ingot::gpu {
namespace {

// These numbers come from reasoning; none has been measured.
// tile_blocks: one block per multiprocessor of the architecture's usual GPU model.
// large_tile_blocks: two waves of blocks, so that the last wave wastes little. AMD has no large tiles: they would leave
//   one wavefront per SIMD and nothing to hide load latency with.
// skinny_tokens: the 16 rows of an mma tile. skinny_spans: one span is multiplied while the next one is loading.
// decoding_tile_tokens: at most two row blocks decode the same weights; with more, decoding once into scratch costs
// less.
constexpr int64_t never = int64_t{1} << 62;
constexpr Tuning cuda[] = {
    {"sm_80", 4, 108, 256, 216, 16, 2, 256},
    {"sm_90", 4, 132, 256, 264, 16, 2, 256},
    {"sm_100", 4, 148, 256, 296, 16, 2, 256},
};
constexpr Tuning hip[] = {
    {"gfx90a", 2, 104, 128, never, 16, 2, 256},
    {"gfx942", 2, 304, 128, never, 16, 2, 256},
    {"gfx950", 2, 256, 128, never, 16, 2, 256},
    {"gfx11", 2, 96, 128, never, 16, 2, 256},
};
// Small, so that tests reach every tile shape.
constexpr Tuning simulated[] = {
    {"sim32", 4, 2, 256, 4, 16, 2, 80},
    {"sim64", 2, 2, 128, 4, 16, 2, 80},
};

template <size_t count>
const Tuning& find(const Tuning (&table)[count], const std::string& architecture, size_t otherwise) {
  for (const Tuning& row : table) {
    if (architecture.starts_with(row.architecture)) return row;
  }
  return table[otherwise];
}

}  // namespace

const Tuning& tuning_of(const GpuDevice& device) {
  const std::string architecture = device.arch();
  switch (device.kind()) {
    case DeviceKind::cuda: return find(cuda, architecture, 2);
    case DeviceKind::hip: return find(hip, architecture, device.warp_width() == 32 ? 3 : 1);
    default: return find(simulated, architecture, 0);
  }
}

}  // namespace ingot::gpu
