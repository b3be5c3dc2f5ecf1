#include "tests/backend/gpu/strict/test_code.h"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "backend/gpu/kernels.h"

namespace ingot::gpu {
namespace {

using Kernels = std::vector<const KernelInfo*>;

struct Target {
  const char* architecture;
  uint32_t flags;
};
constexpr Target targets[] = {{"gfx90a", 0x3f}, {"gfx942", 0x4c}, {"gfx950", 0x4f}, {"gfx1100", 0x41}};

std::string ptx_of(const Kernels& kernels) {
  std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n";
  for (const KernelInfo* kernel : kernels) {
    text += fmt::format(".visible .entry {0}(.param .align 8 .b8 {0}_param_0[{1}]) {{ ret; }}\n", kernel->name,
                        kernel->args_bytes);
  }
  return text + '\0';
}

template <class T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// An ELF file with the sections: none, kernel descriptors, symbols and their names.
std::string elf_of(const Kernels& kernels, uint32_t flags) {
  constexpr size_t descriptor_bytes = 64;
  std::string descriptors, symbols, names(1, '\0');
  append(symbols, Elf64_Sym{});
  for (const KernelInfo* kernel : kernels) {
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<Elf64_Word>(names.size());
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
    symbol.st_shndx = 1;
    symbol.st_value = descriptors.size();
    symbol.st_size = descriptor_bytes;
    append(symbols, symbol);
    names += std::string(kernel->name) + ".kd" + '\0';
    const uint32_t words[descriptor_bytes / 4] = {0, 0, static_cast<uint32_t>(kernel->args_bytes)};
    append(descriptors, words);
  }
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = EM_AMDGPU;
  header.e_version = EV_CURRENT;
  header.e_flags = flags;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 4;
  header.e_shoff = sizeof header + descriptors.size() + symbols.size() + (names.size() + 7) / 8 * 8;
  Elf64_Shdr sections[4] = {};
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = sizeof header;
  sections[1].sh_size = descriptors.size();
  sections[2].sh_type = SHT_SYMTAB;
  sections[2].sh_offset = sections[1].sh_offset + descriptors.size();
  sections[2].sh_size = symbols.size();
  sections[2].sh_link = 3;
  sections[2].sh_entsize = sizeof(Elf64_Sym);
  sections[3].sh_type = SHT_STRTAB;
  sections[3].sh_offset = sections[2].sh_offset + symbols.size();
  sections[3].sh_size = names.size();
  std::string file;
  append(file, header);
  file += descriptors + symbols + names;
  file.resize(header.e_shoff);
  append(file, sections);
  return file;
}

struct TestCode {
  std::list<std::string> images;
  std::vector<CodeObject> objects;

  TestCode() {
    std::map<std::string_view, Kernels> by_file;
    for (const KernelInfo* kernel : kernels()) by_file[kernel->file].push_back(kernel);
    for (const auto& [file, all] : by_file) {
      add(file, "cuda", ptx_of(all));
      for (const Target& target : targets) add(file, target.architecture, elf_of(all, target.flags));
    }
  }
  void add(std::string_view file, std::string_view architecture, std::string image) {
    const std::string& kept = images.emplace_back(std::move(image));
    const auto* begin = reinterpret_cast<const unsigned char*>(kept.data());
    objects.push_back({file, architecture, begin, begin + kept.size()});
  }
};

}  // namespace

std::span<const CodeObject> test_code() {
  static const TestCode code;
  return code.objects;
}

}  // namespace ingot::gpu
