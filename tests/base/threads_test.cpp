// Threads that the system refuses: in a process of its own, whose memory ends behind the stack of the first.
#include "base/threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "base/file_cache.h"
#include "tests/base/scratch.h"
#include "tests/sanitized.h"

namespace ingot {
namespace {

// From now on there is address space for one more thread's stack, and not for two. Stacks are so large that what else
// needs memory, such as a thread's heap, has enough.
void leave_one_thread() {
  constexpr size_t stack = size_t{1} << 30;
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0 || pthread_attr_setstacksize(&attributes, stack) != 0 ||
      pthread_setattr_default_np(&attributes) != 0)
    std::_Exit(1);
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + stack + stack / 2;
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(1);
}

// Runs `work`, which must fail for want of a thread, and ends the process with 7 when it says so.
template <class Work>
void without_threads(const Work& work) {
  leave_one_thread();
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) std::_Exit(2);
    fprintf(stderr, "%s\n", error.what());
    std::_Exit(7);
  }
  std::_Exit(3);
}

TEST(Threads, ARefusedThreadIsAnErrorThatSaysWhatFor) {
  if (sanitized) return;  // sanitizers take more memory than a limit may leave
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
  EXPECT_EXIT(without_threads(work), testing::ExitedWithCode(7), "refuses a thread for a test");
}

TEST(Threads, ATaskToo) {
  if (sanitized) return;  // sanitizers take more memory than a limit may leave
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
  EXPECT_EXIT(without_threads(work), testing::ExitedWithCode(7), "refuses a thread for a task");
}

TEST(Threads, FilesThatAreFetchedAhead) {
  if (sanitized) return;  // sanitizers take more memory than a limit may leave
  const Scratch scratch;
  const auto work = [&] {
    const FileCache cache({.folder = scratch / "cache"});
    const FilePrefetch files(cache, 3, [](size_t) { return RemoteFile(); }, 0, 4);
  };
  EXPECT_EXIT(without_threads(work), testing::ExitedWithCode(7), "refuses a thread for fetching files");
}

}  // namespace
}  // namespace ingot
