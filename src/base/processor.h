// The identity of the processor, for choices that depend on its kind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ingot {

// As /proc/cpuinfo states it. On x86: CPUID's vendor ("AuthenticAMD"), family and model,
// extended parts included. On ARM: the implementer ("0x41") and part numbers of the Main ID Register, family 0. Empty
// and -1 when it does not report them.
struct ProcessorId {
  std::string vendor;
  int64_t family = -1;
  int64_t model = -1;
};
ProcessorId processor_id(const std::filesystem::path& root = "/");

}  // namespace ingot
