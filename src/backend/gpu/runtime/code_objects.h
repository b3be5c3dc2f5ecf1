// The device code that is embedded in the executable.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace ingot::gpu {

struct CodeObject {
  std::string_view file;          // "rms_norm.gpu.cpp"
  std::string_view architecture;  // "gfx942"; or "cuda": a fatbin for several architectures, with PTX
  const unsigned char* begin;
  const unsigned char* end;
};

// All code objects of this build; empty if it was built without a device compiler.
std::span<const CodeObject> code_objects();

}  // namespace ingot::gpu
