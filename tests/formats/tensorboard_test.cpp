// Event records equal those of the PyPI package tensorboard 2.21.0 (RecordWriter and its protocol buffers), byte for
// byte.
#include "formats/tensorboard.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace ingot::formats {
namespace {

constexpr double wall_time = 1700000000.25;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

TEST(Tensorboard, ChecksumIsCrc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(masked_crc32c("123456789"), 0xC78AB0E5U);
}

TEST(Tensorboard, RecordsEqualTensorboards) {
  EXPECT_EQ(hex(tensorboard_version(wall_time)),
            "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9");
  EXPECT_EQ(hex(tensorboard_restart(wall_time, 301)),
            "100000000000000095fbfe180900001040fc54d94110ad023a020801cb79b93b");
  const TensorboardScalar step[] = {{"train/loss", 2.5F}, {"train/lr", 1e-4F}};
  EXPECT_EQ(hex(tensorboard_scalars(wall_time, 300, step)),
            "3200000000000000241956ec0900001040fc54d94110ac022a240a110a0a747261696e2f6c6f737315000020400a0f0a08747261"
            "696e2f6c721517b7d13849f9c968");
  const TensorboardScalar first[] = {{"eval/loss", 0}};
  EXPECT_EQ(hex(tensorboard_scalars(wall_time, 0, first)),
            "1d00000000000000602fdf230900001040fc54d9412a120a100a096576616c2f6c6f737315000000008d8f9191");
}

}  // namespace
}  // namespace ingot::formats
