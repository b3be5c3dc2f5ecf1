#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/cpu_list.h"
#include "base/error.h"

namespace ingot {
namespace {

using Slices = std::set<std::pair<int64_t, int64_t>>;

Slices slices_of(int threads, int64_t begin, int64_t end, int64_t grain) {
  ThreadPool pool(threads);
  std::mutex mutex;
  Slices seen;
  pool.parallel_for(begin, end, grain, [&](int64_t lo, int64_t hi) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(seen.emplace(lo, hi).second) << lo;
  });
  return seen;
}

TEST(ThreadPool, SlicesDependOnTheGrainOnly) {
  const Slices expected = {{3, 7}, {7, 11}, {11, 15}, {15, 16}};
  for (const int threads : {1, 2, 3, 4, 8}) EXPECT_EQ(slices_of(threads, 3, 16, 4), expected) << threads;
}

TEST(ThreadPool, RunsEmptyAndSingleRanges) {
  EXPECT_TRUE(slices_of(4, 5, 5, 1).empty());
  EXPECT_TRUE(slices_of(4, 5, 2, 1).empty());
  EXPECT_EQ(slices_of(4, -2, -1, 100), (Slices{{-2, -1}}));
  EXPECT_EQ(slices_of(2, 0, 5, INT64_MAX), (Slices{{0, 5}}));
}

TEST(ThreadPool, EveryIndexRunsOnceInManyJobs) {
  ThreadPool pool(4);
  std::vector<int> hits(1000);
  for (int job = 0; job < 500; ++job) {
    pool.parallel_for(0, 1000, 7, [&](int64_t lo, int64_t hi) {
      for (int64_t i = lo; i < hi; ++i) ++hits[static_cast<size_t>(i)];
    });
  }
  for (const int count : hits) ASSERT_EQ(count, 500);
}

TEST(ThreadPool, EverySlotRunsOnce) {
  ThreadPool pool(3);
  EXPECT_EQ(pool.threads(), 3);
  for (const size_t slots : {size_t{1}, size_t{3}, size_t{10}}) {
    std::vector<int> hits(slots);
    pool.run(static_cast<int>(slots), [&](int slot) { ++hits[static_cast<size_t>(slot)]; });
    EXPECT_EQ(hits, std::vector<int>(slots, 1));
  }
}

// One slice runs until all others have finished: other threads steal what its thread has not started.
TEST(ThreadPool, SlicesOfASlowThreadAreStolen) {
  constexpr int64_t slices = 96;
  for (const int64_t late : {int64_t{0}, slices / 2, slices - 1}) {
    ThreadPool pool(2);
    std::atomic<int64_t> done = 0;
    bool in_time = false;
    pool.parallel_for(0, slices, 1, [&](int64_t slice, int64_t) {
      if (slice == late) {
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (done != slices - 1 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
        in_time = done == slices - 1;
      } else {
        ++done;
      }
    });
    EXPECT_TRUE(in_time) << late;
  }
}

TEST(ThreadPool, RethrowsTheFirstSlice) {
  for (const int threads : {1, 2, 4, 7}) {
    ThreadPool pool(threads);
    for (int repeat = 0; repeat < 20; ++repeat) {
      try {
        pool.parallel_for(0, 100, 1, [](int64_t lo, int64_t) {
          if (lo % 10 == 3) throw std::runtime_error(std::to_string(lo));
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "3");
      }
    }
    // Only the last slice throws, which runs on a worker. The pool can be used afterwards.
    EXPECT_THROW(pool.parallel_for(0, 100, 1,
                                   [](int64_t lo, int64_t) {
                                     if (lo == 99) throw std::runtime_error("last");
                                   }),
                 std::runtime_error);
    std::atomic<int> count = 0;
    pool.parallel_for(0, 100, 1, [&](int64_t, int64_t) { ++count; });
    EXPECT_EQ(count, 100);
  }
}

// Jobs of few and of many slices alternate, so that threads that finish late enter the next job.
TEST(ThreadPool, RethrowsTheFirstSliceWhenThreadsAreLate) {
  ThreadPool pool(4);
  for (int64_t job = 0; job < 500; ++job) {
    pool.parallel_for(0, 2, 1, [](int64_t, int64_t) {});
    const int64_t first = job % 12;
    try {
      pool.parallel_for(0, 12, 1, [&](int64_t lo, int64_t) {
        if (lo >= first) throw std::runtime_error(std::to_string(lo));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      ASSERT_EQ(error.what(), std::to_string(first));
    }
  }
}

TEST(ThreadPool, NestedCallsRunOnTheCallingThread) {
  ThreadPool outer(3);
  ThreadPool other(2);
  std::atomic<int> count = 0;
  outer.run(3, [&](int) {
    const auto self = std::this_thread::get_id();
    for (ThreadPool* pool : {&outer, &other}) {
      pool->parallel_for(0, 10, 1, [&](int64_t, int64_t) {
        EXPECT_EQ(std::this_thread::get_id(), self);
        ++count;
      });
    }
  });
  EXPECT_EQ(count, 60);
}

// Slices get the number of their thread: no two that run at the same time have the same.
TEST(ThreadPool, SlicesKnowTheirThread) {
  ThreadPool pool(3);
  const auto caller = std::this_thread::get_id();
  std::vector<std::atomic<int>> running(3);
  for (int job = 0; job < 200; ++job) {
    pool.parallel_for(0, 40, 1, [&](int64_t, int64_t, int thread) {
      ASSERT_TRUE(thread >= 0 && thread < 3);
      EXPECT_EQ(thread == 0, std::this_thread::get_id() == caller);
      EXPECT_EQ(running[static_cast<size_t>(thread)]++, 0);
      pool.parallel_for(0, 2, 1, [](int64_t, int64_t, int own) { EXPECT_EQ(own, 0); });
      --running[static_cast<size_t>(thread)];
    });
  }
  pool.parallel_for(0, 1, 1, [](int64_t, int64_t, int thread) { EXPECT_EQ(thread, 0); });
}

TEST(ThreadPool, OwnsAWorkspaceOfTheStatedSize) {
  ThreadPool pool(3, {}, {.per_thread = 1000, .shared = 100});  // rounded up to whole cache lines
  EXPECT_EQ(pool.workspace_bytes(), 3 * 1024U + 128U);
  const ThreadPool::Workspace workspace(pool);
  std::set<std::byte*> ends;
  for (const std::span<std::byte> part : {workspace.of(0), workspace.of(1), workspace.of(2), workspace.shared()}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(part.data()) % 64, 0U);
    EXPECT_EQ(part.size(), part.data() == workspace.shared().data() ? 128U : 1024U);
    std::fill(part.begin(), part.end(), std::byte{1});
    EXPECT_TRUE(ends.insert(part.data() + part.size()).second);
  }
  EXPECT_EQ(*ends.rbegin() - workspace.of(0).data(), static_cast<ptrdiff_t>(pool.workspace_bytes()));
  EXPECT_EQ(ThreadPool(2, {}, no_workspace).workspace_bytes(), 0U);
  EXPECT_EQ(ThreadPool(2).workspace_bytes(), 2 * WorkspaceBytes{}.per_thread + WorkspaceBytes{}.shared);
}

// Several threads use one pool's workspace: each finds there what it wrote.
TEST(ThreadPool, OneCallerUsesTheWorkspaceAtATime) {
  ThreadPool pool(2, {}, {.per_thread = 4096, .shared = 4096});
  std::vector<std::thread> callers;
  for (int mine = 0; mine < 3; ++mine) {
    callers.emplace_back([&pool, mine] {
      const auto value = static_cast<std::byte>(mine);
      const auto holds = [&](std::span<const std::byte> part) {
        return std::all_of(part.begin(), part.end(), [&](std::byte byte) { return byte == value; });
      };
      for (int64_t job = 0; job < 100; ++job) {
        const ThreadPool::Workspace workspace(pool);
        std::fill(workspace.shared().begin(), workspace.shared().end(), value);
        // In one slice on the caller, and in several.
        pool.parallel_for(0, 1 + job % 7, 1, [&](int64_t, int64_t, int thread) {
          std::fill(workspace.of(thread).begin(), workspace.of(thread).end(), value);
          EXPECT_TRUE(holds(workspace.of(thread)) && holds(workspace.shared()));
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ThreadPool, SlicesMustNotAskForTheWorkspace) {
  ThreadPool pool(2), other(1);
  for (ThreadPool* asked : {&pool, &other}) {
    EXPECT_THROW(pool.parallel_for(0, 4, 1, [&](int64_t, int64_t) { const ThreadPool::Workspace workspace(*asked); }),
                 Error);
    const ThreadPool::Workspace free(*asked);
  }
}

TEST(ThreadPool, AThreadMustNotAskForTheWorkspaceTwice) {
  ThreadPool pool(2);
  {
    const ThreadPool::Workspace first(pool);
    const auto again = [&] { const ThreadPool::Workspace second(pool); };
    EXPECT_THROW(again(), Error);
  }
  const ThreadPool::Workspace free(pool);
}

TEST(ThreadPool, SeveralCallersTakeTurns) {
  ThreadPool pool(3);
  std::vector<std::vector<int>> hits(4, std::vector<int>(50));
  std::vector<std::thread> callers;
  for (auto& mine : hits) {
    callers.emplace_back([&pool, &mine] {
      for (int job = 0; job < 100; ++job) {
        pool.parallel_for(0, 50, 3, [&](int64_t lo, int64_t hi) {
          for (int64_t i = lo; i < hi; ++i) ++mine[static_cast<size_t>(i)];
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const auto& mine : hits) EXPECT_EQ(mine, std::vector<int>(50, 100));
}

// The CPUs of each thread while it runs slices (the caller's first), checked against the CPU that it runs on.
std::vector<std::vector<int>> cpus_in_slices(ThreadPool& pool) {
  std::mutex mutex;
  std::map<std::thread::id, std::vector<int>> seen;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  do {
    pool.parallel_for(0, 64, 1, [&](int64_t, int64_t) {
      const std::vector<int> usable = usable_cpus();
      if (usable.size() == 1) {
        EXPECT_EQ(sched_getcpu(), usable[0]);
      }
      const std::lock_guard lock(mutex);
      const auto [at, added] = seen.emplace(std::this_thread::get_id(), usable);
      EXPECT_EQ(at->second, usable);
    });
  } while (std::ssize(seen) < pool.threads() && std::chrono::steady_clock::now() < give_up);
  std::vector<std::vector<int>> cpus = {seen[std::this_thread::get_id()]};
  seen.erase(std::this_thread::get_id());
  for (const auto& [thread, usable] : seen) cpus.push_back(usable);
  return cpus;
}

TEST(ThreadPool, ThreadsAreBoundToTheirCpus) {
  const std::vector<int> usable = usable_cpus();
  ASSERT_FALSE(usable.empty());
  const int first = usable.back(), second = usable.front();
  for (int repeat = 0; repeat < 3; ++repeat) {
    ThreadPool pool(2, {first, second, first});
    EXPECT_EQ(cpus_in_slices(pool), (std::vector<std::vector<int>>{{first}, {second}}));
    EXPECT_EQ(usable_cpus(), usable) << "the caller, after its slices";
  }
  ThreadPool alone(1, {first});
  EXPECT_EQ(cpus_in_slices(alone), (std::vector<std::vector<int>>{{first}}));
  ThreadPool free(2);
  EXPECT_EQ(cpus_in_slices(free), (std::vector<std::vector<int>>{usable, usable}));
}

TEST(ThreadPool, ThreadsAreBoundOnlyDuringSlices) {
  const std::vector<int> usable = usable_cpus();
  ASSERT_FALSE(usable.empty());
  const int cpu = usable.back();
  ThreadPool pool(2, {cpu, cpu});
  // A job of one slice, one inside a slice of another pool, and one that throws.
  pool.parallel_for(0, 1, 1, [&](int64_t, int64_t) { EXPECT_EQ(usable_cpus(), std::vector<int>{cpu}); });
  EXPECT_EQ(usable_cpus(), usable);
  ThreadPool other(2, {usable.front(), usable.front()});
  pool.parallel_for(0, 8, 1, [&](int64_t, int64_t) {
    other.parallel_for(0, 8, 1, [&](int64_t, int64_t) { EXPECT_EQ(usable_cpus(), std::vector<int>{cpu}); });
  });
  EXPECT_EQ(usable_cpus(), usable);
  EXPECT_THROW(pool.parallel_for(0, 8, 1, [](int64_t, int64_t) { throw std::runtime_error("slice"); }),
               std::runtime_error);
  EXPECT_EQ(usable_cpus(), usable);
  std::vector<int> of_a_child;
  std::thread([&] { of_a_child = usable_cpus(); }).join();
  EXPECT_EQ(of_a_child, usable);
  // Another caller runs its slices as thread 0.
  std::thread([&] {
    pool.parallel_for(0, 8, 1, [&](int64_t, int64_t) { EXPECT_EQ(usable_cpus(), std::vector<int>{cpu}); });
    EXPECT_EQ(usable_cpus(), usable);
  }).join();
}

TEST(ThreadPool, ACallerMayStayBoundAfterItsSlices) {
  const std::vector<int> usable = usable_cpus();
  ASSERT_FALSE(usable.empty());
  const int cpu = usable.back();
  ThreadPool pool(2, {cpu, cpu}), other(1, {usable.front()});
  {
    const ThreadPool::Binding bound(pool);
    EXPECT_EQ(usable_cpus(), std::vector<int>{cpu});
    pool.parallel_for(0, 8, 1, [&](int64_t, int64_t) { EXPECT_EQ(usable_cpus(), std::vector<int>{cpu}); });
    EXPECT_EQ(usable_cpus(), std::vector<int>{cpu});
    other.parallel_for(0, 8, 1, [&](int64_t, int64_t) { EXPECT_EQ(usable_cpus(), std::vector<int>{usable.front()}); });
    const ThreadPool::Binding again(pool);
    EXPECT_EQ(usable_cpus(), std::vector<int>{cpu});
  }
  EXPECT_EQ(usable_cpus(), usable);
  pool.parallel_for(0, 8, 1, [&](int64_t, int64_t) { EXPECT_EQ(usable_cpus(), std::vector<int>{cpu}); });
  EXPECT_EQ(usable_cpus(), usable);
  const ThreadPool::Binding nothing(ThreadPool(1));
  EXPECT_EQ(usable_cpus(), usable);
}

TEST(ThreadPool, RejectsInvalidArguments) {
  EXPECT_THROW(ThreadPool(0), Error);
  EXPECT_THROW(ThreadPool(2, {0}), Error);
  EXPECT_THROW(ThreadPool(2, {0, max_cpus - 1}), Error);  // a CPU that does not exist
  ThreadPool pool(2);
  EXPECT_THROW(pool.parallel_for(0, 1, 0, [](int64_t, int64_t) {}), Error);
}

TEST(ThreadPool, AvailableCpusAreAtLeastOne) { EXPECT_GE(available_cpus(), 1); }

}  // namespace
}  // namespace ingot
