// Replays the corpora of the templates' fuzz targets: files named valid_* are rendered, files named bad_* are refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/templates.h"

namespace ingot::text {
namespace {

template <class Read>
void replay(const std::string& target, Read read) {
  const std::filesystem::path folder = std::filesystem::path(INGOT_TEST_DATA).parent_path() / "fuzz/corpus" / target;
  int num_valid = 0;
  int num_bad = 0;
  for (const auto& seed : std::filesystem::directory_iterator(folder)) {
    const std::string name = seed.path().filename().string();
    std::ifstream file(seed.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const bool is_valid = name.starts_with("valid_");
    ASSERT_TRUE(is_valid || name.starts_with("bad_")) << name;
    EXPECT_EQ(read(bytes), is_valid) << target << "/" << name;
    ++(is_valid ? num_valid : num_bad);
  }
  EXPECT_GE(num_valid, 2);
  EXPECT_GE(num_bad, 3);
}

TEST(TemplateCorpus, Jinja) { replay("jinja", fuzz::render_template); }
TEST(TemplateCorpus, ChatTemplate) { replay("chat_template", fuzz::render_chat); }

}  // namespace
}  // namespace ingot::text
