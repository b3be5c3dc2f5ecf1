#include "tests/backend/gpu/strict/image.h"

#include <elf.h>

#include <cstring>
#include <sstream>
#include <string_view>

namespace strict {
namespace {

// The number behind the first `word` of the text; -1 if there is none.
int number_after(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  int number = -1;
  if (at != std::string::npos) std::istringstream(text.substr(at + word.size())) >> number;
  return number;
}

struct Machine {
  uint32_t flags;
  const char* architecture;
};
constexpr Machine machines[] = {{0x3f, "gfx90a"}, {0x41, "gfx1100"}, {0x4c, "gfx942"}, {0x4f, "gfx950"}};

// The code with which this version of ROCm answers to an image of another architecture.
Status wrong_architecture(const Settings& settings) {
  const int version = settings.version_major * 10 + settings.version_minor;
  if (version <= 60) return shared_object_init_failed;
  return version <= 63 ? invalid_kernel_file : no_binary_for_gpu;
}

template <class T>
T at(const char* data, size_t offset) {
  T value;
  std::memcpy(&value, data + offset, sizeof value);
  return value;
}

}  // namespace

Status read_ptx(const char* text, const Settings& settings, Image& image) {
  if (std::strncmp(text, ".version", 8) != 0) return invalid_image;
  const std::string ptx = text;
  // CUDA 12 has PTX 8, CUDA 13 has PTX 9.
  if (number_after(ptx, ".version ") > settings.version_major - 4) return unsupported_ptx_version;
  if (number_after(ptx, ".target sm_") > number_after(settings.architecture, "sm_")) return no_binary_for_gpu;
  const std::string entry = ".entry ";
  for (size_t begin = ptx.find(entry); begin != std::string::npos; begin = ptx.find(entry, begin + 1)) {
    const size_t name = begin + entry.size();
    const size_t end = ptx.find('(', name);
    const size_t bytes = ptx.find('[', end);
    if (bytes == std::string::npos) return invalid_image;
    image.args_bytes[ptx.substr(name, end - name)] = static_cast<uint32_t>(std::stoul(ptx.substr(bytes + 1)));
  }
  return success;
}

Status read_amd_elf(const void* data, const Settings& settings, Image& image) {
  const char* bytes = static_cast<const char*>(data);
  const auto header = at<Elf64_Ehdr>(bytes, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != EM_AMDGPU) return invalid_image;
  const char* architecture = "";
  for (const Machine& machine : machines) {
    if (machine.flags == (header.e_flags & 0xff)) architecture = machine.architecture;
  }
  if (settings.architecture != architecture) return wrong_architecture(settings);
  const auto section = [&](size_t index) { return at<Elf64_Shdr>(bytes, header.e_shoff + index * sizeof(Elf64_Shdr)); };
  for (size_t s = 0; s < header.e_shnum; ++s) {
    const Elf64_Shdr symbols = section(s);
    if (symbols.sh_type != SHT_SYMTAB) continue;
    const char* names = bytes + section(symbols.sh_link).sh_offset;
    for (size_t offset = 0; offset < symbols.sh_size; offset += sizeof(Elf64_Sym)) {
      const auto symbol = at<Elf64_Sym>(bytes, symbols.sh_offset + offset);
      std::string_view name = names + symbol.st_name;
      if (!name.ends_with(".kd")) continue;  // the kernel's descriptor
      const Elf64_Shdr place = section(symbol.st_shndx);
      constexpr size_t kernarg_size = 8;  // offset in the descriptor
      const size_t descriptor = place.sh_offset + symbol.st_value - place.sh_addr;
      name.remove_suffix(3);
      image.args_bytes[std::string(name)] = at<uint32_t>(bytes, descriptor + kernarg_size);
    }
  }
  return success;
}

}  // namespace strict
