// Launches that record_launches (tests/backend/gpu/record) saved, and the comparison of memory with theirs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/backend/gpu/ptx/executor.h"

namespace ingot::ptx {

struct Region {
  Allocation place;
  std::string type;      // "f32", "bf16", ..., "scratch" if the op table has none
  double tolerance = 0;  // relative to the region's largest value
};

struct Recording {
  std::string kernel;
  LaunchShape shape;
  uint64_t base = 0;  // address of the memory
  std::vector<std::byte> parameters;
  std::vector<Region> regions;
  std::vector<std::byte> before, after;
};

// Error: not_found, corrupt.
Recording read_recording(const std::filesystem::path& folder, const std::string& kernel);

struct Difference {
  bool same = false;    // bit for bit
  bool within = false;  // the tolerances
  double error = 0;     // the largest, relative to the largest value of its region
};

// Compares memory after a launch. Floats and scratch memory (as f32) may differ by the tolerance, where both are
// finite, or are the same infinity or NaN; other types, and bytes outside the regions, may not differ.
Difference compare(const Recording& recording, const std::vector<std::byte>& memory);

}  // namespace ingot::ptx
