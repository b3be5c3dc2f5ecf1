// Reads what cuModuleLoadData and hipModuleLoadData take: PTX text, and AMD code objects.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/backend/gpu/strict/settings.h"
#include "tests/backend/gpu/strict/status.h"

namespace strict {

struct Image {
  std::map<std::string, uint32_t> args_bytes;  // of each kernel
};

// PTX (PTX ISA, "Directives"): .version, .target, and .entry with one parameter of `.b8 NAME[BYTES]`.
Status read_ptx(const char* text, const Settings& settings, Image& image);

// ELF (LLVM, User Guide for AMDGPU Backend: "Header", "Symbols", "Kernel Descriptor"). The code for another
// architecture depends on the version of ROCm.
Status read_amd_elf(const void* data, const Settings& settings, Image& image);

}  // namespace strict
