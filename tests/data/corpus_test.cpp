// Replays the seeds of the jsonl fuzz target: files named valid_* are accepted, files named bad_* are refused.
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/fuzz/data.h"

namespace ingot::data {
namespace {

TEST(Corpus, Jsonl) {
  int num_valid = 0, num_bad = 0;
  const auto folder = std::filesystem::path(INGOT_TEST_DATA).parent_path() / "fuzz/corpus/jsonl";
  for (const auto& seed : std::filesystem::directory_iterator(folder)) {
    const std::string name = seed.path().filename().string();
    const std::string bytes = read_file(seed.path());
    const bool is_valid = name.starts_with("valid_");
    ASSERT_TRUE(is_valid || name.starts_with("bad_")) << name;
    EXPECT_EQ(fuzz::read_jsonl(std::as_bytes(std::span(bytes))), is_valid) << name;
    ++(is_valid ? num_valid : num_bad);
  }
  EXPECT_GE(num_valid, 8);
  EXPECT_GE(num_bad, 12);
}

}  // namespace
}  // namespace ingot::data
