#include "base/folder_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/lock_file.h"
#include "tests/base/scratch.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

class FolderLockTest : public testing::Test {
 protected:
  // Writes the lock of a process on another machine whose last heartbeat is that many seconds old.
  void leave_foreign_lock(int64_t seconds_ago) const { leave_foreign(path(), "abc", seconds_ago); }
  static void leave_foreign(const fs::path& path, const std::string& token, int64_t seconds_ago) {
    write_file(path, "host far-away\nplace other-boot/pid:[1]\npid 77\nstarted 5\nsince then\ntoken " + token + "\n");
    timespec times[2] = {};
    ::clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds_ago;
    times[1] = times[0];
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  // The message and hint with which a second lock is refused.
  std::string refused() const {
    try {
      const FolderLock second(scratch_.folder());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unavailable) << error.what();
      return error.message() + "; " + error.hint();
    }
    ADD_FAILURE() << "the lock was taken twice";
    return "";
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(scratch_.folder())) names.push_back(entry.path().filename());
    return names;
  }
  fs::path path() const { return scratch_ / "lock"; }

  Scratch scratch_;
};

TEST_F(FolderLockTest, IsExclusiveAndReleased) {
  {
    const FolderLock lock(scratch_.folder());
    EXPECT_TRUE(lock.held());
    EXPECT_EQ(lock.taken_over(), "");
    const std::string why = refused();
    EXPECT_NE(why.find("process " + std::to_string(::getpid()) + " on "), std::string::npos) << why;
    EXPECT_EQ(files(), std::vector<std::string>{"lock"});
  }
  EXPECT_EQ(files(), std::vector<std::string>{});
  const FolderLock again(scratch_.folder());
  EXPECT_EQ(again.taken_over(), "");
}

TEST_F(FolderLockTest, OfAKilledProcessIsTakenOverImmediately) {
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(scratch_.folder());
    ::raise(SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(fs::exists(path()));
  const FolderLock lock(scratch_.folder());
  EXPECT_NE(lock.taken_over().find("process " + std::to_string(child)), std::string::npos) << lock.taken_over();
  EXPECT_NE(lock.taken_over().find("gone"), std::string::npos) << lock.taken_over();
  EXPECT_EQ(files(), std::vector<std::string>{"lock"});
}

// The process number was reused: the lock names this process's number with another start time.
TEST_F(FolderLockTest, DetectsReusedProcessNumbers) {
  std::string text;
  {
    const FolderLock lock(scratch_.folder());
    text = read_file(path());
  }
  const size_t started = text.find("started ") + 8;
  text.replace(started, text.find('\n', started) - started, "1");
  write_file(path(), text);
  const FolderLock lock(scratch_.folder());
  EXPECT_NE(lock.taken_over().find("gone"), std::string::npos) << lock.taken_over();
}

// The start time is unknown, as where /proc hides other users' processes: heartbeats decide.
TEST_F(FolderLockTest, OfAHiddenProcessIsRefusedWhileItsHeartbeatIsFresh) {
  LockHolder holder = LockHolder::this_process();
  holder.started.clear();
  write_file(path(), holder.text());
  const std::string why = refused();
  EXPECT_NE(why.find("restart in"), std::string::npos) << why;
  fs::last_write_time(path(), fs::file_time_type::clock::now() - std::chrono::minutes(2));
  const FolderLock lock(scratch_.folder());
  EXPECT_NE(lock.taken_over().find("has not refreshed its lock"), std::string::npos) << lock.taken_over();
}

TEST_F(FolderLockTest, OfAnotherMachineIsRefusedWhileItsHeartbeatIsFresh) {
  leave_foreign_lock(30);
  const std::string why = refused();
  EXPECT_NE(why.find("process 77 on far-away"), std::string::npos) << why;
  EXPECT_NE(why.find("restart in"), std::string::npos) << why;
  EXPECT_EQ(files(), std::vector<std::string>{"lock"});
  leave_foreign_lock(61);
  const FolderLock lock(scratch_.folder());
  EXPECT_NE(lock.taken_over().find("has not refreshed its lock"), std::string::npos) << lock.taken_over();
  EXPECT_TRUE(lock.held());
}

TEST_F(FolderLockTest, WritesHeartbeats) {
  const FolderLock lock(scratch_.folder(), {.heartbeat_s = 0.01});
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(path(), old);
  while (fs::last_write_time(path()) == old) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(lock.held());
}

TEST_F(FolderLockTest, ALostLockIsNoticedAndNotReleased) {
  {
    const FolderLock lock(scratch_.folder(), {.heartbeat_s = 0.01});
    fs::remove(path());
    leave_foreign_lock(0);
    while (lock.held()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_NE(read_file(path()).find("far-away"), std::string::npos) << "another process's lock was removed";
}

// Of many processes that want the lock of a dead holder, one gets it.
TEST_F(FolderLockTest, OneOfManyProcessesTakesItOver) {
  leave_foreign_lock(1000);
  int go[2], tried[2];
  ASSERT_EQ(::pipe(go), 0);
  ASSERT_EQ(::pipe(tried), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    ::close(go[1]);
    const auto until_closed = [](int pipe) {
      char none = 0;
      while (::read(pipe, &none, 1) > 0) {
      }
    };
    until_closed(go[0]);
    int code = 1;
    try {
      const FolderLock lock(scratch_.folder());
      ::close(tried[1]);
      until_closed(tried[0]);  // the other processes have ended
      code = lock.held() ? 0 : 2;
    } catch (const Error&) {
      code = 1;
    }
    ::_exit(code);
  }
  for (const int end : {go[0], go[1], tried[0], tried[1]}) ::close(end);
  int held = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    held += WEXITSTATUS(status) == 0;
  }
  EXPECT_EQ(held, 1);
}

// The process that was taking the lock over has died, and so has the one that was removing its takeover file.
TEST_F(FolderLockTest, OneOfManyTakesItOverDespiteAbandonedTakeovers) {
  for (int round = 0; round < 10; ++round) {
    leave_foreign_lock(1000);
    leave_foreign(scratch_ / ".lock.turn.abc", "def", 1000);
    leave_foreign(scratch_ / ".lock.turn.def", "ghi", 1000);
    std::atomic<int> tried = 0, held = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        try {
          const FolderLock lock(scratch_.folder());
          ++held;
          ++tried;
          while (tried < 8) std::this_thread::yield();
        } catch (const Error&) {
          ++tried;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(held, 1) << round;
    EXPECT_EQ(files(), std::vector<std::string>{});
  }
}

TEST_F(FolderLockTest, ATakeoverInProgressIsRespected) {
  leave_foreign_lock(1000);
  leave_foreign(scratch_ / ".lock.turn.abc", "def", -3600);  // by the other machine's clock; the heartbeat stays fresh
  EXPECT_NE(refused().find("several processes are trying to take this lock at once"), std::string::npos);
  EXPECT_EQ(read_lock(path())->holder.token, "abc");
}

TEST_F(FolderLockTest, AnUnreadableLockIsNamed) {
  fs::create_symlink("lock", path());
  EXPECT_NE(refused().find("lock: cannot be read: "), std::string::npos) << refused();
}

TEST_F(FolderLockTest, AnUnwritableFolderIsNamed) {
  try {
    const FolderLock lock(scratch_ / "nowhere");
    FAIL() << "a lock was taken in a folder that does not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_NE(error.message().find("nowhere"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace ingot
