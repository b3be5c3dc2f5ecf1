#include "base/log.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "tests/base/scratch.h"

namespace ingot {
namespace {

TEST(Log, StandardErrorGetsTheChosenLevels) {
  ::testing::internal::CaptureStderr();
  {
    const Log log(LogLevel::info);
    log.debug("not {}", 1);
    log.info("plain {}", 2);
    log.warning("careful {}", 3);
    log.error("{} braces {{}} %v", 4);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "plain 2\nwarning: careful 3\nerror: 4 braces {} %v\n");
}

TEST(Log, NullLogWritesNothing) {
  ::testing::internal::CaptureStderr();
  Log().error("nothing");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Log, AFileGetsEveryLevelAndIsAppendedTo) {
  const Scratch scratch;
  for (int run = 0; run < 2; ++run) {
    Log log;
    log.add_file(scratch / "log.txt");
    log.debug("detail {}", run);
    // Each line is flushed, so the file can be read while the log is open.
    EXPECT_NE(read_file(scratch / "log.txt").find("Z debug detail " + std::to_string(run) + "\n"), std::string::npos);
  }
  EXPECT_NE(read_file(scratch / "log.txt").find("detail 0\n"), std::string::npos);
}

TEST(Log, AFileThatCannotBeOpenedIsAnError) {
  const Scratch scratch;
  write_file(scratch / "a", "x");
  Log log;
  try {
    log.add_file(scratch / "a" / "log.txt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_NE(error.message().find("log.txt"), std::string::npos);
  }
}

}  // namespace
}  // namespace ingot
