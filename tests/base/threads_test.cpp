// Thread creation that the system refuses.
#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "base/error.h"
#include "tests/base/few_threads.h"
#include "tests/sanitized.h"

namespace ingot {
namespace {

TEST(Threads, ARefusedThreadIsAnErrorThatNamesThePurpose) {
  if (sanitized) return;  // sanitizers need more memory than the limit leaves
  const auto work = [] {
    std::vector<std::thread> threads;
    std::atomic<bool> end{false};
    const auto wait = [&] { end.wait(false); };
    try {
      for (int i = 0; i < 4; ++i) threads.push_back(start_thread("a test", wait));
    } catch (const Error&) {
      end = true;
      end.notify_all();
      for (std::thread& thread : threads) thread.join();
      throw;
    }
  };
  EXPECT_EXIT(without_threads(work), testing::ExitedWithCode(7), "cannot start a thread for a test");
}

TEST(Threads, ARefusedTaskThreadIsAnErrorToo) {
  if (sanitized) return;  // sanitizers need more memory than the limit leaves
  const auto work = [] {
    std::promise<void> end;
    std::shared_future<void> ended = end.get_future().share();
    std::vector<std::future<void>> tasks;
    try {
      for (int i = 0; i < 4; ++i) tasks.push_back(start_task("a task", [ended] { ended.wait(); }));
    } catch (const Error&) {
      end.set_value();
      throw;
    }
  };
  EXPECT_EXIT(without_threads(work), testing::ExitedWithCode(7), "cannot start a thread for a task");
}

}  // namespace
}  // namespace ingot
