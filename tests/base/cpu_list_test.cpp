#include "base/cpu_list.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"

namespace ingot {
namespace {

using Cpus = std::vector<int>;

void expect_usage(const char* words, const auto& work) {
  try {
    work();
    ADD_FAILURE() << "no error; expected one with '" << words << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(error.message().find(words), std::string::npos) << "expected '" << words << "' in: " << error.message();
  }
}

TEST(CpuList, IsParsedAndFormatted) {
  const Cpus cpus = {9, 4, 5, 6, 0, 8191, 7};
  EXPECT_EQ(parse_cpu_list("0-3,8"), (Cpus{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("0"), Cpus{0});
  EXPECT_EQ(parse_cpu_list("9,4-6,0,8191,7-7"), cpus);
  EXPECT_EQ(format_cpu_list(cpus), "9,4-6,0,8191,7");
  EXPECT_EQ(format_cpu_list(Cpus{0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(format_cpu_list({}), "");
}

TEST(CpuList, RejectsInvalidLists) {
  for (const char* list :
       {"", ",", "0,", ",0", "0,,1", "a", "1a", "-1", "1-", "0-2-4", " 0", "0 1", "0x1", "+1", "1.0", "0-3:2", "all"}) {
    expect_usage("is not a CPU number", [&] { parse_cpu_list(list); });
  }
  expect_usage("the range '3-1' is descending", [] { parse_cpu_list("0,3-1"); });
  expect_usage("CPU 1 is listed twice", [] { parse_cpu_list("1,0-3"); });
  for (const char* list : {"8192", "0-8192", "99999999999999999999"}) {
    expect_usage("Linux supports 0 to 8191", [&] { parse_cpu_list(list); });
  }
}

TEST(CpuList, RequiresEnoughUsableCpus) {
  const Cpus usable = usable_cpus();
  ASSERT_FALSE(usable.empty());
  require_cpus({}, 1000);
  require_cpus(usable, std::ssize(usable));
  expect_usage("is not available to this process", [&] { require_cpus(Cpus{usable[0], usable.back() + 1}, 1); });
  expect_usage("cannot bind", [&] { require_cpus(usable, std::ssize(usable) + 1); });
}

TEST(CpuList, PoolsGetConsecutiveShares) {
  const std::vector<int> cpus = {9, 4, 0, 7, 2};
  EXPECT_EQ(share_of_cpus(cpus, 2, 0), (std::vector<int>{9, 4}));
  EXPECT_EQ(share_of_cpus(cpus, 2, 1), (std::vector<int>{0, 7}));
  EXPECT_EQ(share_of_cpus(cpus, 1, 2), std::vector<int>{0});
  EXPECT_TRUE(share_of_cpus({}, 2, 1).empty());
}

TEST(BoundThread, BindsTheThreadDuringItsLifetime) {
  const Cpus before = usable_cpus();
  ASSERT_FALSE(before.empty());
  for (const int cpu : before) {
    const BoundThread bound(cpu);
    EXPECT_EQ(usable_cpus(), Cpus{cpu});
    EXPECT_EQ(sched_getcpu(), cpu);
  }
  EXPECT_EQ(usable_cpus(), before);
}

TEST(BoundThread, BindsAnotherThread) {
  const Cpus before = usable_cpus();
  ASSERT_FALSE(before.empty());
  Cpus seen;
  std::atomic<bool> bound = false;
  std::thread thread([&] {
    bound.wait(false);
    seen = usable_cpus();
  });
  bind_thread(thread.native_handle(), before.back());
  bound = true;
  bound.notify_one();
  thread.join();
  EXPECT_EQ(seen, Cpus{before.back()});
  EXPECT_EQ(usable_cpus(), before);
}

TEST(BoundThread, AMissingCpuIsAnError) {
  const Cpus before = usable_cpus();
  EXPECT_THROW(bind_thread(pthread_self(), max_cpus - 1), Error);
  EXPECT_EQ(usable_cpus(), before);
}

}  // namespace
}  // namespace ingot
