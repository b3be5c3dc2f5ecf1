// The header of an AMD code object, as far as a device is chosen by it.
#pragma once

#include <array>
#include <cstdint>

namespace ingot::gpu {

using AmdImage = std::array<unsigned char, 64>;

// An ELF64 header (little-endian) of machine AMDGPU with these e_flags: 0x3f for gfx90a, 0x4c for gfx942, beside flags
// of other features.
constexpr AmdImage amd_image(uint32_t flags) {
  AmdImage image{0x7f, 'E', 'L', 'F', 2, 1, 1};
  image[18] = 224;  // e_machine
  for (unsigned byte = 0; byte < 4; ++byte) image[48 + byte] = static_cast<unsigned char>(flags >> (8 * byte));
  return image;
}

}  // namespace ingot::gpu
