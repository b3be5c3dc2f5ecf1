#include "base/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

namespace ingot {
namespace {

int second_signal = 0;
void note_second(int number) { second_signal = number; }
void leave(int) { ::_exit(130); }

TEST(StopSignal, TheFirstSetsTheFlagAndTheSecondCallsTheHandler) {
  second_signal = 0;
  {
    const StopSignal stop(note_second);
    EXPECT_FALSE(stop.requested());
    ::raise(SIGTERM);
    EXPECT_TRUE(stop.requested());
    EXPECT_EQ(stop.number(), SIGTERM);
    EXPECT_EQ(second_signal, 0);
    ::raise(SIGINT);
    EXPECT_EQ(second_signal, SIGINT);
    EXPECT_EQ(stop.number(), SIGTERM);
    EXPECT_THROW(StopSignal{note_second}, Error);
  }
  const StopSignal again(note_second);
  EXPECT_FALSE(again.requested());
  ::raise(SIGUSR1);
  EXPECT_EQ(again.number(), SIGUSR1);
}

TEST(StopSignal, TheSameSignalTwiceAtOnceFromAProgramCountsOnce) {
  for (bool at_once = false; !at_once;) {
    second_signal = 0;
    const StopSignal stop(note_second);
    const double from = steady_seconds();
    ::raise(SIGUSR1);
    ::raise(SIGUSR1);
    at_once = steady_seconds() - from < 1;  // else the process was suspended in between
    if (!at_once) continue;
    EXPECT_EQ(second_signal, 0);
    ::usleep(1'100'000);
    ::raise(SIGUSR1);
    EXPECT_EQ(second_signal, SIGUSR1);
  }
}

// systemd ends a session with several signals, and a closed terminal does so to a program that Ctrl-C has already
// stopped.
TEST(StopSignal, SignalsOfProgramsAtOnceCountOnceAndHangUpIsNeverASecond) {
  auto* const inherited = ::signal(SIGHUP, SIG_DFL);  // the tests themselves may run under nohup
  for (bool at_once = false; !at_once;) {
    second_signal = 0;
    const StopSignal stop(note_second);
    const double from = steady_seconds();
    ::raise(SIGTERM);
    ::raise(SIGUSR1);
    at_once = steady_seconds() - from < 1;  // else the process was suspended in between
    if (!at_once) continue;
    ::raise(SIGHUP);
    ::usleep(1'100'000);
    ::raise(SIGHUP);
    EXPECT_EQ(second_signal, 0);
    EXPECT_EQ(stop.number(), SIGTERM);
    ::raise(SIGTERM);
    EXPECT_EQ(second_signal, SIGTERM);
  }
  ::signal(SIGHUP, inherited);
}

TEST(StopSignal, RestoresFormerHandlers) {
  struct sigaction before{};
  struct sigaction after{};
  ::sigaction(SIGPIPE, nullptr, &before);
  {
    const StopSignal stop(note_second);
  }
  ::sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  ::sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(after.sa_handler, SIG_DFL);
}

TEST(StopSignal, HangUpStopsUnlessIgnored) {
  auto* const inherited = ::signal(SIGHUP, SIG_DFL);  // the tests themselves may run under nohup
  {
    const StopSignal stop(note_second);
    ::raise(SIGHUP);
    EXPECT_EQ(stop.number(), SIGHUP);
  }
  struct sigaction now{};
  EXPECT_EQ(::signal(SIGHUP, SIG_IGN), SIG_DFL);
  EXPECT_EQ(stop_signals(), (std::vector<int>{SIGINT, SIGTERM, SIGUSR1}));
  {
    const StopSignal stop(note_second);
    ::raise(SIGHUP);
    EXPECT_FALSE(stop.requested());
  }
  ::sigaction(SIGHUP, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
  ::signal(SIGHUP, SIG_DFL);
  {
    const StopSignal stop(note_second, HangUp::ignored);
    ::sigaction(SIGHUP, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL);
  }
  ::signal(SIGHUP, inherited);
}

// In a process of its own, as the executable does it: the second signal ends it with exit code 130.
TEST(StopSignal, TheSecondEndsTheProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    const StopSignal stop(leave);
    ::raise(SIGINT);
    if (!stop.requested()) ::_exit(1);
    ::raise(SIGINT);
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

}  // namespace
}  // namespace ingot
