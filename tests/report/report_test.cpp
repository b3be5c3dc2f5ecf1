// ingot report: axes, curves, reading events, and a page that contains the run's data and no scripts.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "report/axis.h"
#include "report/chart.h"
#include "report/charts.h"
#include "report/key_figures.h"
#include "report/page.h"
#include "report/picture.h"
#include "report/run_log.h"
#include "report/series.h"

namespace ingot::report {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

class RunFolder {
 public:
  explicit RunFolder(std::string_view events) {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(testing::TempDir()) / fmt::format("ingot_report_{}_{}", test->name(), ::getpid());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    write_file(path_ / "events.jsonl", events);
  }
  ~RunFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

constexpr const char* two_steps =
    R"({"type":"start","name":"a","steps":4,"parameters":1000,"trained":10,"device":"cpu","precision":"bf16"})"
    "\n"
    R"({"type":"eval","step":0,"loss":3.0,"perplexity":20.0,"tokens":9,"seconds":1})"
    "\n"
    R"({"type":"sample","step":0,"prompt":"<b>My</b>","text":" <script>alert(1)</script>"})"
    "\n"
    R"({"type":"step","step":1,"loss":2.5,"lr":0.1,"grad_norm":1,"tokens":100,"tokens_per_s":100,"padding":0.5,"mfu":0.5,"step_s":1,"memory_bytes":2048})"
    "\n"
    R"({"type":"step","step":2,"loss":null,"lr":0.1,"grad_norm":null,"tokens":200,"tokens_per_s":50,"padding":0,"mfu":0.1,"step_s":3,"memory_bytes":1024,"skipped":true})"
    "\n"
    R"({"type":"eval","step":2,"loss":2.0,"perplexity":7.5,"tokens":9,"seconds":1})"
    "\n";

TEST(Axis, TicksAreRoundNumbersThatCoverTheRange) {
  const Axis axis = rounded_axis(1.83, 3.41, 5);
  EXPECT_DOUBLE_EQ(axis.step, 0.5);
  EXPECT_DOUBLE_EQ(axis.low, 1.5);
  EXPECT_DOUBLE_EQ(axis.high, 3.5);
  ASSERT_EQ(axis.ticks.size(), 5u);
  EXPECT_DOUBLE_EQ(axis.ticks[1], 2.0);
  EXPECT_EQ(tick_label(axis, 2.0), "2.0");
  EXPECT_DOUBLE_EQ(axis.share(2.5), 0.5);
}

TEST(Axis, ASingleValueMakesARange) {
  for (const double value : {0.0, 3.25, -7.0, 1e-5, 6e11}) {
    const Axis axis = rounded_axis(value, value, 5);
    EXPECT_LE(axis.low, value);
    EXPECT_GT(axis.high, axis.low);
    EXPECT_GE(axis.ticks.size(), 2u) << value;
    EXPECT_LT(axis.ticks.size(), 20u) << value;
  }
}

TEST(Axis, StepTicksAreIntegersInTheRange) {
  const Axis axis = step_axis(0, 3, 10);
  EXPECT_EQ(axis.ticks, (std::vector<double>{0, 1, 2, 3}));
  const Axis long_run = step_axis(1, 300, 5);
  EXPECT_EQ(long_run.ticks, (std::vector<double>{100, 200, 300}));
  EXPECT_DOUBLE_EQ(long_run.low, 1);
}

TEST(Axis, LabelsAreShort) {
  const auto labels = [](double low, double high, int n) {
    const Axis axis = rounded_axis(low, high, n);
    std::vector<std::string> all;
    for (const double tick : axis.ticks) all.push_back(tick_label(axis, tick));
    return all;
  };
  EXPECT_EQ(labels(0, 2e-4, 4), (std::vector<std::string>{"0", "5e-5", "1e-4", "1.5e-4", "2e-4"}));
  EXPECT_EQ(labels(0, 100000, 5), (std::vector<std::string>{"0", "20k", "40k", "60k", "80k", "100k"}));
  EXPECT_EQ(labels(0, 1.5e6, 3), (std::vector<std::string>{"0", "0.5M", "1.0M", "1.5M"}));
  EXPECT_EQ(labels(0, 0.003, 3), (std::vector<std::string>{"0", "0.001", "0.002", "0.003"}));
  EXPECT_EQ(labels(0, 600, 3), (std::vector<std::string>{"0", "200", "400", "600"}));
}

TEST(Axis, LogarithmicTicksAreRoundNumbers) {
  const Axis narrow = log_axis(72, 450);
  EXPECT_EQ(narrow.ticks, (std::vector<double>{50, 100, 200, 500}));
  EXPECT_NEAR(narrow.share(std::sqrt(50.0 * 500)), 0.5, 1e-12);
  const Axis wide = log_axis(22, 48000);
  EXPECT_EQ(wide.ticks, (std::vector<double>{10, 100, 1000, 10000, 100000}));
  EXPECT_EQ(tick_label(wide, 1000), "1000");
  EXPECT_EQ(tick_label(wide, 100000), "100k");
  EXPECT_GT(log_axis(100, 100).high, log_axis(100, 100).low);
}

TEST(Series, DownsamplingKeepsSpikesAndEnds) {
  Series series;
  for (int i = 0; i < 100000; ++i) series.push_back({static_cast<double>(i), std::sin(i * 0.001)});
  series[54321].y = 50;
  series[12345].y = -50;
  const Series thin = thin_out(series, 2000);
  EXPECT_LE(thin.size(), 2000u);
  EXPECT_GT(thin.size(), 1000u);
  EXPECT_EQ(thin.front().x, 0);
  EXPECT_EQ(thin.back().x, 99999);
  bool high = false, low = false;
  for (size_t i = 0; i < thin.size(); ++i) {
    if (i > 0) EXPECT_LT(thin[i - 1].x, thin[i].x);
    high = high || (thin[i].x == 54321 && thin[i].y == 50);
    low = low || (thin[i].x == 12345 && thin[i].y == -50);
  }
  EXPECT_TRUE(high && low);
  EXPECT_EQ(thin_out(Series(series.begin(), series.begin() + 2000), 2000).size(), 2000u);
}

TEST(Series, DownsamplingKeepsGaps) {
  Series series;
  for (int i = 0; i < 5000; ++i) series.push_back({static_cast<double>(i), i > 2000 && i < 3000 ? nan : 1.0});
  const Series thin = thin_out(series, 100);
  int gaps = 0;
  for (const Point& point : thin) gaps += std::isnan(point.y);
  EXPECT_GT(gaps, 5);
}

TEST(Series, SmoothingIsAnExponentialMeanOfEarlierValues) {
  const Series series = {{1, 4}, {2, nan}, {3, 8}, {4, 2}};
  const Series smoothed = smooth(series, 3);  // weights 1, 1/2, 1/4 ... by age
  ASSERT_EQ(smoothed.size(), 3u);
  EXPECT_DOUBLE_EQ(smoothed[0].y, 4);
  EXPECT_DOUBLE_EQ(smoothed[1].y, (8 + 0.5 * 4) / 1.5);
  EXPECT_DOUBLE_EQ(smoothed[2].y, (2 + 0.5 * 8 + 0.25 * 4) / 1.75);
  EXPECT_EQ(smoothed[1].x, 3);
}

TEST(RunLog, ReadsEventsAndCountsAnIncompleteLine) {
  const RunFolder folder(std::string(two_steps) + R"({"type":"step","step":3,"lo)");
  const RunLog run = read_run(folder.path());
  EXPECT_EQ(run.name, "a");
  EXPECT_EQ(run.last_step, 2);
  EXPECT_EQ(run.num_tokens, 200);
  EXPECT_EQ(run.num_skipped, 1);
  EXPECT_EQ(run.num_unread_lines, 1);
  EXPECT_EQ(run.loss.size(), 2u);
  EXPECT_TRUE(std::isnan(run.loss[1].y));
  const KeyFigures figures = key_figures_of(run);
  EXPECT_DOUBLE_EQ(figures.final_loss, 2.5);
  EXPECT_DOUBLE_EQ(figures.perplexity_before, 20);
  EXPECT_DOUBLE_EQ(figures.perplexity_after, 7.5);
  EXPECT_DOUBLE_EQ(figures.tokens_per_s, (100 * 1 + 50 * 3) / 4.0);
  EXPECT_DOUBLE_EQ(figures.padding, 0.25);
  EXPECT_DOUBLE_EQ(figures.seconds, 4);
  EXPECT_DOUBLE_EQ(figures.peak_memory, 2048);
  EXPECT_EQ(progress_of(run), "step 2 of 4, running or killed");
}

TEST(RunLog, ARunWithoutStepsGivesAPage) {
  for (const char* events : {"", R"({"type":"start","name":"early","steps":4})"
                                 "\n"}) {
    const RunFolder folder(events);
    const std::vector<RunLog> runs = {read_run(folder.path())};
    EXPECT_NE(page(runs).find("nothing to draw yet"), std::string::npos);
    EXPECT_NE(picture(runs).find("nothing to draw yet"), std::string::npos);
  }
}

TEST(RunLog, MissingFoldersAreNamed) {
  const RunFolder folder(two_steps);
  const std::filesystem::path missing = folder.path() / "no_such_run";
  for (int made = 0; made < 2; ++made) {
    try {
      read_run(missing);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::not_found);
      EXPECT_NE(error.message().find("no_such_run"), std::string::npos);
    }
    std::filesystem::create_directory(missing);  // in the second round it is a folder, but not of a run
  }
}

TEST(RunLog, AnInvalidFileIsCorrupt) {
  const RunFolder folder("rubbish\n[1]\n");
  try {
    read_run(folder.path());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
  }
}

TEST(Page, EscapesTheRunsTexts) {
  const RunFolder folder(two_steps);
  write_file(folder.path() / "recipe.yaml", "name: \"</pre><img src=x>\"\n");
  const std::vector<RunLog> runs = {read_run(folder.path())};
  const std::string html = page(runs);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(1)"), std::string::npos);
  EXPECT_NE(html.find("&lt;b&gt;My&lt;/b&gt;"), std::string::npos);
  EXPECT_EQ(html.find("://"), std::string::npos) << "a page must not need the network";
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST(Page, OfSeveralRunsHasALegend) {
  const RunFolder folder(two_steps);
  RunLog first = read_run(folder.path()), second = first, third = first;
  second.name = "other & <more>";
  third.folder = "elsewhere/b";
  const std::vector<RunLog> runs = {first, second, third};
  EXPECT_EQ(labels_of(runs), (std::vector<std::string>{folder.path().string(), "other & <more>", "elsewhere/b"}));
  const std::string html = page(runs);
  EXPECT_NE(html.find("other &amp; &lt;more&gt;, held-out"), std::string::npos);
  EXPECT_NE(html.find("class=\"solid c2\""), std::string::npos);
}

TEST(Chart, DrawsALineAndBreaksItAtAGap) {
  const Chart chart{"t", "y", false, false, {{"l", {{0, 1}, {1, 2}, {2, nan}, {3, 1}, {4, 2}}, 0, LineKind::solid}}};
  const std::string svg = draw_chart(chart, {0, 0, 400, 200});
  const size_t path = svg.find(" d=\"M");
  ASSERT_NE(path, std::string::npos);
  const std::string d = svg.substr(path + 4, svg.find('"', path + 4) - path - 4);
  EXPECT_EQ(std::count(d.begin(), d.end(), 'M'), 2);
  EXPECT_EQ(std::count(d.begin(), d.end(), 'L'), 2);
  EXPECT_EQ(svg.find("<circle"), std::string::npos);
}

TEST(Chart, EscapeReplacesCharactersThatXmlForbids) {
  EXPECT_EQ(escape("a<b>\"'&"), "a&lt;b&gt;&quot;&#39;&amp;");
  EXPECT_EQ(escape(std::string_view("x\0y\x1b", 4)), "x\xEF\xBF\xBDy\xEF\xBF\xBD");
  EXPECT_EQ(escape("\xff"), "\xEF\xBF\xBD");
  EXPECT_EQ(escape("\xC3\xA9"), "\xC3\xA9");
}

// The time spent waiting for the next batch is drawn as a share of the step, where the run reports it.
TEST(RunLog, ReadsTheShareOfWaitingForData) {
  const RunFolder without(two_steps);
  EXPECT_TRUE(std::isnan(read_run(without.path()).data_share.at(0).y));
  const RunFolder with(R"({"type":"step","step":1,"loss":2.5,"step_s":2,"data_s":0.5})"
                       "\n");
  const RunLog run = read_run(with.path());
  ASSERT_EQ(run.data_share.size(), 1U);
  EXPECT_EQ(run.data_share[0].y, 0.25);
  const std::vector<Chart> charts = other_charts({&run, 1});
  EXPECT_EQ(charts.back().title, "Waiting for data");
  EXPECT_EQ(charts.back().lines.at(0).points.at(0).y, 25);
}

}  // namespace
}  // namespace ingot::report
