// Runs a fuzz target on its seeds: files named valid_* must be accepted, and files named bad_* must throw an Error.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <type_traits>

#include "base/file.h"
#include "tests/locations.h"

namespace ingot::fuzz {

// Requirements on a corpus: the largest size of a seed, and the least number of each kind.
struct Corpus {
  size_t size = 8192;
  int num_valid = 2;
  int num_bad = 3;
};

// `read` takes a std::string (and optionally whether it should be accepted) and returns whether it was accepted.
template <class Read>
void replay(const std::string& target, Read read, Corpus least = {}) {
  const std::filesystem::path folder = std::filesystem::path(test_data).parent_path() / "fuzz/corpus" / target;
  int num_valid = 0;
  int num_bad = 0;
  for (const auto& seed : std::filesystem::directory_iterator(folder)) {
    const std::string name = seed.path().filename().string();
    const std::string bytes = read_file(seed.path());
    const bool is_valid = name.starts_with("valid_");
    ASSERT_TRUE(is_valid || name.starts_with("bad_")) << name;
    EXPECT_LT(bytes.size(), least.size) << name;
    bool accepted = false;
    if constexpr (std::is_invocable_v<Read, std::string, bool>) {
      accepted = read(bytes, is_valid);
    } else {
      accepted = read(bytes);
    }
    EXPECT_EQ(accepted, is_valid) << target << "/" << name;
    ++(is_valid ? num_valid : num_bad);
  }
  EXPECT_GE(num_valid, least.num_valid);
  EXPECT_GE(num_bad, least.num_bad);
}

}  // namespace ingot::fuzz
