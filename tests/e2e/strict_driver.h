// The program on the strict driver (tests/backend/gpu/strict): `cuda:0` and `hip:0` without a GPU.
#pragma once

#include <string>
#include <vector>

#include "tests/e2e/program.h"

namespace ingot::e2e {

struct StrictVendor {
  const char* name;
  const char* device;
  const char* simulated;  // the device with the same bits, without the vendor's libraries
  const char* architecture;
  const char* old_version;

  // "cuda" or "hip": all devices
  std::string kind() const { return std::string(device).substr(0, std::string(device).find(':')); }
};
inline constexpr StrictVendor strict_vendors[] = {{"CUDA", "cuda:0", "sim32", "sm_90", "12.0"},
                                                  {"HIP", "hip:0", "sim64", "gfx942", "6.0"}};

// What the strict driver and its surroundings are for one command.
struct StrictMachine {
  std::string settings = {};   // strict/settings.h
  bool libraries = false;      // whether the stand-ins for the vendors' libraries are there
  bool graphs = true;          // whether decoding must use graphs; else as the program decides
  std::string variables = {};  // further assignments
};

// Assignments for a shell, before a command, `ingot_with_test_code`: both drivers are the strict one.
std::string on_strict_driver(const StrictMachine& machine = {});

// Runs ingot_with_test_code on it, with INGOT_HOME in the program's folder.
Result run_on_strict_driver(const Program& program, const StrictMachine& machine,
                            const std::vector<std::string>& arguments);
// Adds `--json`, expects exit code 0 and that neither driver nor libraries describe a misuse, and returns the report.
Json report_on_strict_driver(const Program& program, const StrictMachine& machine, std::vector<std::string> arguments);

}  // namespace ingot::e2e
