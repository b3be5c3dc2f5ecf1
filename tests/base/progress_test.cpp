#include "base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/strings.h"
#include "tests/base/scratch.h"

namespace ingot {
namespace {

double fake_time = 0;
double fake_now() { return fake_time; }

// Runs `work` with a progress display and returns the output.
template <class F>
std::string output_of(ProgressStyle style, int columns, int64_t total, F&& work, int64_t start = 0) {
  const Scratch scratch;
  const int fd = ::open((scratch / "out").c_str(), O_WRONLY | O_CREAT, 0600);
  fake_time = 100;
  {
    Progress progress("train", total,
                      {.style = style, .unit = "steps", .start = start, .fd = fd, .columns = columns, .now = fake_now});
    work(progress);
  }
  ::close(fd);
  return read_file(scratch / "out");
}

TEST(Progress, PlainLinesAreFew) {
  const std::string out = output_of(ProgressStyle::plain, 0, 1000, [](Progress& p) {
    for (int i = 1; i <= 1000; ++i) {
      fake_time += 0.125;
      p.update(i, "loss 2.5");
    }
    p.finish();
  });
  const std::vector<std::string> lines = split(out, '\n');
  EXPECT_EQ(lines[0], "train   4% 40/1000 steps  8 steps/s  2m 00s left  loss 2.5");
  EXPECT_GE(lines.size(), 20U);
  EXPECT_LE(lines.size(), 36U);
  EXPECT_EQ(lines[lines.size() - 2], "train 100% 1000/1000 steps  8 steps/s  2m 05s  loss 2.5");
  EXPECT_EQ(out.find('\r'), std::string::npos);
}

TEST(Progress, WorkBeforeAResumeIsNotInTheRate) {
  const std::string out = output_of(
      ProgressStyle::plain, 0, 1000,
      [](Progress& p) {
        fake_time += 10;
        p.update(520);
      },
      500);
  EXPECT_EQ(out, "train  52% 520/1000 steps  2 steps/s  4m 00s left\n");
}

TEST(Progress, TerminalLinesFitTheWidth) {
  for (const int columns : {1, 10, 40, 60, 80, 200}) {
    const std::string out = output_of(ProgressStyle::terminal, columns, 1000, [](Progress& p) {
      for (int i = 1; i <= 50; ++i) {
        fake_time += 0.0625;
        p.update(i, "loss \xc3\xa9");
      }
      p.finish();
      p.finish();
    });
    size_t drawn = 0;
    for (std::string line : split(out, '\r')) {
      while (line.ends_with('\n')) line.pop_back();
      if (line.ends_with("\x1b[K")) line.resize(line.size() - 3);
      EXPECT_LT(num_columns(line), static_cast<size_t>(std::max(2, columns))) << line;
      EXPECT_TRUE(is_utf8(line)) << line;
      ++drawn;
    }
    EXPECT_LE(drawn, 29U);
    EXPECT_GE(drawn, 25U);
    EXPECT_EQ(out.find('\n'), out.size() - 1);
  }
}

TEST(Progress, BarShowsTheShareDone) {
  const std::string out = output_of(ProgressStyle::terminal, 100, 100, [](Progress& p) {
    fake_time += 1;
    p.update(50);
  });
  EXPECT_EQ(out, "\rtrain  50% [###############...............] 50/100 steps  50 steps/s  1 s left\x1b[K\n");
}

TEST(Progress, QuietWritesNothingAndAnUnknownTotalHasNoBar) {
  EXPECT_EQ(output_of(ProgressStyle::quiet, 80, 10,
                      [](Progress& p) {
                        fake_time += 100;
                        p.update(5);
                        p.finish();
                      }),
            "");
  EXPECT_EQ(output_of(ProgressStyle::plain, 80, 0,
                      [](Progress& p) {
                        fake_time += 10;
                        p.update(5);
                      }),
            "train  5 steps  0.5 steps/s\n");
  EXPECT_EQ(progress_style(true), ProgressStyle::quiet);
}

}  // namespace
}  // namespace ingot
