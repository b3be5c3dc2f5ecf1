// Replays the seeds of the fuzz targets: files named valid_* are accepted, files named bad_* are refused with an Error.
#include "tests/formats/bytes.h"
#include "tests/fuzz/formats.h"

namespace ingot::formats {
namespace {

template <class Read>
void replay(const std::string& target, Read read) {
  const std::filesystem::path folder = std::filesystem::path(INGOT_TEST_DATA).parent_path() / "fuzz/corpus" / target;
  int num_valid = 0;
  int num_bad = 0;
  for (const auto& seed : std::filesystem::directory_iterator(folder)) {
    const std::string name = seed.path().filename().string();
    const std::string bytes = read_file(seed.path());
    const bool is_valid = name.starts_with("valid_");
    ASSERT_TRUE(is_valid || name.starts_with("bad_")) << name;
    EXPECT_LT(bytes.size(), 4096U) << name;
    EXPECT_EQ(read(testing::as_span(bytes)), is_valid) << target << "/" << name;
    ++(is_valid ? num_valid : num_bad);
  }
  EXPECT_GE(num_valid, 2);
  EXPECT_GE(num_bad, 3);
}

TEST(Corpus, Safetensors) { replay("safetensors", fuzz::read_safetensors); }
TEST(Corpus, Gguf) { replay("gguf", fuzz::read_gguf); }
TEST(Corpus, Npy) { replay("npy", fuzz::read_npy); }

}  // namespace
}  // namespace ingot::formats
