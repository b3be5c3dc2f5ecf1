// The device code inside the executable.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace ingot::gpu {

struct CodeObject {
  std::string_view file;          // "rms_norm.gpu.cpp"
  std::string_view architecture;  // "gfx942", or "cuda": a fatbin with code for several and PTX
  const unsigned char* begin;
  const unsigned char* end;
};

// Everything that this build has; empty when no device compiler was there.
std::span<const CodeObject> code_objects();

}  // namespace ingot::gpu
