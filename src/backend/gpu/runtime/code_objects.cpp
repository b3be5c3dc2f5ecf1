#include "backend/gpu/runtime/code_objects.h"

#include <elf.h>

#include <charconv>
#include <cstdint>
#include <cstring>

namespace ingot::gpu {
namespace {

// e_flags & EF_AMDGPU_MACH (LLVM, "User Guide for AMDGPU Backend", section Header).
constexpr uint32_t machine_mask = 0x0ff;
constexpr uint16_t amd_gpu = 224;  // EM_AMDGPU
struct Machine {
  uint32_t flags;
  std::string_view architecture;
};
constexpr Machine machines[] = {{0x03f, "gfx90a"}, {0x041, "gfx1100"}, {0x04c, "gfx942"}, {0x04f, "gfx950"}};

constexpr int min_compute_capability = 80;

}  // namespace

std::string_view elf_architecture(const CodeObject& code) {
  Elf64_Ehdr header;
  if (code.end - code.begin < static_cast<std::ptrdiff_t>(sizeof header)) return {};
  std::memcpy(&header, code.begin, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != amd_gpu) return {};
  for (const Machine& machine : machines) {
    if (machine.flags == (header.e_flags & machine_mask)) return machine.architecture;
  }
  return {};
}

bool runs_on(const CodeObject& code, std::string_view architecture) {
  if (code.architecture != "cuda") return !architecture.empty() && elf_architecture(code) == architecture;
  constexpr std::string_view prefix = "sm_";
  if (!architecture.starts_with(prefix)) return false;
  int capability = 0;
  std::from_chars(architecture.data() + prefix.size(), architecture.data() + architecture.size(), capability);
  return capability >= min_compute_capability;
}

}  // namespace ingot::gpu
