// Philox4x32-10 (base/philox.h) for kernels. Kernel passes only.
#pragma once

#include "backend/gpu/number.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

struct Words {
  uint32_t at[4];
};

// The block of four random words for a counter.
GPU_FN Words philox(Words counter, uint32_t key_low, uint32_t key_high) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter.at[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter.at[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter.at[1] ^ key_low, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter.at[3] ^ key_high, static_cast<uint32_t>(p0)};
    key_low += 0x9E3779B9;
    key_high += 0xBB67AE85;
  }
  return counter;
}

}  // namespace ingot::gpu::GPU_TARGET
#endif
