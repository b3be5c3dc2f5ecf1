#include "comm/in_process.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <latch>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/comm/transport_checks.h"

namespace ingot::comm {
namespace {

using Body = std::function<void(const Group&)>;

Error error_of(const InProcess& settings, const Body& body) {
  try {
    run_in_process(settings, body);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::internal, ""};
}

void on_some_ranks(void (*check)(const Group&)) {
  for (const int ranks : {1, 2, 3, 5}) {
    run_in_process({.ranks = ranks}, [&](const Group& group) {
      EXPECT_EQ(group.size(), ranks);
      check(group);
    });
  }
}

TEST(InProcess, ReducesIntegerSumsAndMaxima) { on_some_ranks(check_integer_sums_and_maxima); }

TEST(InProcess, FloatingPointSumsAreInTheOrderOfRanks) {
  on_some_ranks(check_floating_point_sums_are_in_the_order_of_ranks);
}

TEST(InProcess, SectionsAreReducedAndGathered) { on_some_ranks(check_sections_are_reduced_and_gathered); }

TEST(InProcess, BroadcastsTextAndValues) { on_some_ranks(check_broadcast_text_and_one_value); }

TEST(InProcess, MessagesArriveInOrder) { on_some_ranks(check_messages_arrive_in_order); }

TEST(InProcess, ManyOperationsMayBeWaitedForInAnyOrder) { on_some_ranks(check_many_operations_at_once); }

TEST(InProcess, SubgroupsWorkIndependently) { on_some_ranks(check_subgroups_work_independently); }

TEST(InProcess, WhileOneRankWorksTheOthersKeepSynchronising) {
  for (const int ranks : {1, 3}) {
    std::atomic<int> done = 0;
    run_in_process({.ranks = ranks}, [&](const Group& group) {
      std::function<void(const std::atomic<bool>&)> work;
      if (group.rank() == 0) work = [&](const std::atomic<bool>& wanted) { done = wanted ? 1 : 2; };
      run_while_synchronising(group, work);
      EXPECT_EQ(done, 1);
    });
  }
  const Error failed = error_of({.ranks = 2}, [](const Group& group) {
    std::function<void(const std::atomic<bool>&)> work;
    if (group.rank() == 0) work = [](const std::atomic<bool>&) { throw_error(ErrorKind::corrupt, "what came"); };
    run_while_synchronising(group, work);
    group.barrier();
  });
  EXPECT_EQ(failed.kind(), ErrorKind::corrupt);
  EXPECT_NE(failed.message().find("what came"), std::string::npos);
}

// A transport of two ranks whose peer always agrees, and which counts the synchronisations.
class Agreeing : public Transport {
 public:
  explicit Agreeing(std::atomic<int>& meetings) : meetings_(meetings) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  PendingOperation all_reduce(void*, size_t, Number, ReduceOp) override {
    ++meetings_;
    return done();
  }
  PendingOperation reduce_scatter(void*, const void*, std::span<const size_t>, Number, ReduceOp) override {
    return done();
  }
  PendingOperation all_gather(void*, const void*, std::span<const size_t>) override { return done(); }
  PendingOperation broadcast(void*, size_t, int) override { return done(); }
  PendingOperation send(const void*, size_t, int) override { return done(); }
  PendingOperation receive(void*, size_t, int) override { return done(); }
  PendingOperation barrier() override { return done(); }
  std::unique_ptr<Transport> split(int, int, const std::string&) override { return nullptr; }
  void require_running() override {}
  void note(std::string) override {}
  std::string behind() override { return {}; }
  void fail(const Error&) noexcept override {}

 private:
  struct Done : Operation {
    void wait() override {}
  };
  static PendingOperation done() { return std::make_unique<Done>(); }
  std::atomic<int>& meetings_;
};

TEST(InProcess, LongWorkSynchronisesRepeatedly) {
  std::atomic<int> meetings = 0;
  bool met_while_working = false;
  run_while_synchronising(Group(std::make_shared<Agreeing>(meetings)), [&](const std::atomic<bool>& wanted) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);  // limits a failing test
    while (meetings < 3 && wanted && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    met_while_working = meetings >= 3;
  });
  EXPECT_TRUE(met_while_working);
}

TEST(InProcess, WorkIsAbandonedWhenAnotherRankFails) {
  const Error failed = error_of({.ranks = 2}, [](const Group& group) {
    if (group.rank() == 1) throw_error(ErrorKind::resource, "no memory");
    run_while_synchronising(group, [](const std::atomic<bool>& wanted) {
      while (wanted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  });
  EXPECT_EQ(failed.kind(), ErrorKind::resource);
}

// A receive that has failed has not received, however often it is waited for.
TEST(InProcess, AReceiveThatFailedFailsAgain) {
  int failures = 0;
  const Error failed = error_of({.ranks = 2}, [&](const Group& group) {
    if (group.rank() == 1) throw_error(ErrorKind::resource, "no memory");
    std::vector<std::byte> bytes(4);
    Operation receive = group.begin_receive(bytes, 1);
    for (int i = 0; i < 2; ++i) {
      try {
        receive.wait();
      } catch (const Error&) {
        ++failures;
      }
    }
  });
  EXPECT_EQ(failed.kind(), ErrorKind::resource);
  EXPECT_EQ(failures, 2);
}

TEST(InProcess, AReceiveOfAnotherSizeFailsAgain) {
  int failures = 0;
  run_in_process({.ranks = 2}, [&](const Group& group) {
    std::vector<std::byte> bytes(4);
    if (group.rank() == 1) {
      group.begin_send(std::span(bytes).first(3), 0).wait();
      return;
    }
    Operation receive = group.begin_receive(bytes, 1);
    for (int i = 0; i < 2; ++i) {
      try {
        receive.wait();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::internal);
        ++failures;
      }
    }
  });
  EXPECT_EQ(failures, 2);
}

TEST(InProcess, NoRankPassesABarrierBeforeAllArrive) {
  std::atomic<int> come = 0;
  run_in_process({.ranks = 5}, [&](const Group& group) {
    ++come;
    group.barrier();
    EXPECT_EQ(come, 5);
  });
}

TEST(InProcess, AnErrorOfOneRankEndsAllWithItsMessage) {
  std::atomic<int> reported = 0;
  const Error error = error_of({.ranks = 4, .timeout_s = 60}, [&](const Group& group) {
    std::vector<int64_t> values(100000, 1);
    if (group.rank() == 2) {
      group.all_reduce(std::span(values), ReduceOp::sum);
      throw_hint(ErrorKind::resource, "make room", "the disk is full");
    }
    try {
      group.all_reduce(std::span(values), ReduceOp::sum);
      while (true) {
        Operation pending = group.begin_all_reduce(std::span(values), ReduceOp::max);
        group.barrier();
      }
    } catch (const Error& other) {
      EXPECT_EQ(other.kind(), ErrorKind::resource);
      EXPECT_EQ(other.message(), "rank 2 failed: the disk is full");
      EXPECT_EQ(other.hint(), "make room");
      ++reported;
      throw;
    }
  });
  EXPECT_EQ(reported, 3);
  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_EQ(error.message(), "rank 2: the disk is full");
  EXPECT_EQ(error.hint(), "make room");
}

TEST(InProcess, ExceptionsOfOtherTypesEndAllToo) {
  const Error error = error_of({.ranks = 2}, [](const Group& group) {
    if (group.rank() == 1) throw std::runtime_error("bad luck");
    std::byte one{};
    group.begin_receive({&one, 1}, 1).wait();
  });
  EXPECT_EQ(error.kind(), ErrorKind::internal);
  EXPECT_EQ(error.message(), "rank 1: bad luck");
}

// A request is that of all ranks.
TEST(InProcess, WrongRequestsNameNoRank) {
  const Error error = error_of({.ranks = 2}, [](const Group&) { throw_hint(ErrorKind::usage, "use 2", "3 is odd"); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_EQ(error.message(), "3 is odd");
  EXPECT_EQ(error.hint(), "use 2");
}

TEST(InProcess, AMissingRankIsNamed) {
  std::latch both(2);  // the first rank to time out reports that the other one arrived
  const Error error = error_of({.ranks = 3, .timeout_s = 0.2}, [&](const Group& group) {
    if (group.rank() == 1) {
      // Busy until the others have timed out.
      while (true) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        group.begin_send({}, 1).wait();
      }
    }
    std::array<int64_t, 2> ones = {1, 1};
    const Operation before = group.begin_all_reduce(std::span(ones).first(1), ReduceOp::sum);
    Operation sum = group.begin_all_reduce(std::span(ones).last(1), ReduceOp::sum);
    both.arrive_and_wait();
    sum.wait();
  });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_NE(error.message().find("has waited 0.2 s for rank 1 to reach operation 1, all_reduce of 1"),
            std::string::npos)
      << error.message();
}

TEST(InProcess, ARankThatDoesNotEndIsReported) {
  std::atomic<bool> reported = false;
  const InProcess settings{.ranks = 2, .timeout_s = 0.1, .stuck = [&](const Error& error) {
                             EXPECT_EQ(error.message(), "rank 0: no more");
                             reported = true;
                           }};
  const Error error = error_of(settings, [&](const Group& group) {
    if (group.rank() == 0) throw_error(ErrorKind::unavailable, "no more");
    while (!reported) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_EQ(error.message(), "rank 0: no more");
}

TEST(InProcess, MismatchedCallsAreErrors) {
  const Error sizes = error_of({.ranks = 2}, [](const Group& group) {
    std::vector<float> values(group.rank() == 0 ? 3 : 4);
    group.all_reduce(std::span(values), ReduceOp::sum);
  });
  EXPECT_EQ(sizes.kind(), ErrorKind::internal);
  EXPECT_NE(sizes.message().find("operation 0 of 'world' is all_reduce of"), std::string::npos) << sizes.message();

  const Error bytes = error_of({.ranks = 2}, [](const Group& group) {
    std::vector<std::byte> data(group.rank() == 0 ? 3 : 4);
    if (group.rank() == 0) {
      group.begin_send(data, 1).wait();
    } else {
      group.begin_receive(data, 0).wait();
    }
  });
  EXPECT_NE(bytes.message().find("received 3 bytes from rank 0, expected 4"), std::string::npos) << bytes.message();
}

TEST(InProcess, OverflowingSumsAreErrors) {
  const Error error = error_of({.ranks = 2}, [](const Group& group) {
    group.all_sum(group.rank() == 0 ? std::numeric_limits<int64_t>::max() : int64_t{1});
  });
  EXPECT_EQ(error.kind(), ErrorKind::internal);
  EXPECT_NE(error.message().find("overflows"), std::string::npos) << error.message();
}

TEST(InProcess, ZeroRanksAreAnError) {
  EXPECT_EQ(error_of({.ranks = 0}, [](const Group&) {}).kind(), ErrorKind::usage);
}

}  // namespace
}  // namespace ingot::comm
