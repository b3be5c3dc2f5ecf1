// Replays the seeds of the recipe fuzz target: files named valid_* are accepted, files named bad_* are refused.
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/fuzz/recipe.h"

namespace ingot::train {
namespace {

TEST(Corpus, Recipe) {
  int num_valid = 0, num_bad = 0;
  const auto folder = std::filesystem::path(INGOT_TEST_DATA).parent_path() / "fuzz/corpus/recipe";
  for (const auto& seed : std::filesystem::directory_iterator(folder)) {
    const std::string name = seed.path().filename().string();
    const std::string bytes = read_file(seed.path());
    const bool is_valid = name.starts_with("valid_");
    ASSERT_TRUE(is_valid || name.starts_with("bad_")) << name;
    EXPECT_EQ(fuzz::read(std::as_bytes(std::span(bytes))), is_valid) << name;
    ++(is_valid ? num_valid : num_bad);
  }
  EXPECT_GE(num_valid, 3);
  EXPECT_GE(num_bad, 14);
}

}  // namespace
}  // namespace ingot::train
