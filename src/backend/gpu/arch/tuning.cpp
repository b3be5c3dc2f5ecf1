#include "backend/gpu/arch/tuning.h"

#include <string>

namespace ingot::gpu {
namespace {

// Every number is a guess by reason; none has been measured.
// tile_blocks: one block for each multiprocessor, whose number is that of the architecture's usual product.
// large_tile_blocks: two rounds of blocks, so that the last round wastes little. AMD's have no large tiles: they would
//   leave one wave a SIMD and nothing to hide loads with.
// few_tokens: a matrix tile's 16. few_spans: one span is multiplied while the next is on its way.
// decoding_tile_tokens: up to two blocks of rows decode the same weights; from there on once through scratch is less.
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
// Small, for tests to come by every tile.
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
