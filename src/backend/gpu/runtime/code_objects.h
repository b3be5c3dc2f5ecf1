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

// The architecture in the ELF header of an AMD code object: "gfx942". Empty for other files and for architectures that
// this build never compiles for.
std::string_view elf_architecture(const CodeObject& code);

// Whether a device of `architecture` ("sm_90", "gfx942") can run the code. For AMD its ELF header decides; a fatbin has
// code for every compute capability from 8.0 on (cmake/DeviceCode.cmake), of which the driver selects one.
bool runs_on(const CodeObject& code, std::string_view architecture);

}  // namespace ingot::gpu
