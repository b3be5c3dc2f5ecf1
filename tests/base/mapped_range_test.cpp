// Each fault is tested in a process of its own: after a fault the process publishes no file.
#include "base/mapped_range.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/file_watch.h"
#include "base/thread_pool.h"
#include "tests/base/scratch.h"
#include "tests/sanitized.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

int64_t sum(std::span<const std::byte> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0},
                         [](int64_t sum, std::byte b) { return sum + std::to_integer<int64_t>(b); });
}

void require(bool what, const char* words) {
  if (what) return;
  fprintf(stderr, "requirement failed: %s\n", words);
  std::_Exit(1);
}
#define REQUIRE(what) require(what, #what)

struct MappedRangeTest : testing::Test {
  Scratch scratch;
  fs::path path = scratch / "a.bin";
  MappedRangeTest() { write_file(path, std::string(8 * page, 'a')); }
};

TEST_F(MappedRangeTest, ATruncatedFileReadsAsZerosAndIsReported) {
  const auto child = [&] {
    const MappedFile file(path), other(path);
    write_file(scratch / "b.bin", "before");
    check_mapped_files();
    FileWatch watch;
    watch.add(file);
    REQUIRE(!watch.fault());
    fs::resize_file(path, 2 * page);
    REQUIRE(sum(file.bytes().first(2 * page)) == static_cast<int64_t>(2 * page) * 'a');
    REQUIRE(!file.range()->faulty());
    REQUIRE(sum(file.bytes()) == static_cast<int64_t>(2 * page) * 'a');
    REQUIRE(file.range()->faulty());
    REQUIRE(!other.range()->faulty());
    REQUIRE(watch.fault()->file == path);
    fs::resize_file(path, 8 * page);
    REQUIRE(watch.fault().has_value());  // a fault stays known
    try {
      write_file(scratch / "b.bin", "after");
      REQUIRE(false);
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::corrupt);
      REQUIRE(error.message().find(path.string()) != std::string::npos);
    }
    REQUIRE(read_file(scratch / "b.bin") == "before");
    std::_Exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST_F(MappedRangeTest, TheFaultOfAnUnmappedFileStaysKnown) {
  const auto child = [&] {
    {
      const MappedFile file(path);
      fs::resize_file(path, page);
      REQUIRE(sum(file.bytes()) == static_cast<int64_t>(page) * 'a');
    }
    try {
      check_mapped_files();
    } catch (const Error& error) {
      fprintf(stderr, "%s\n", error.message().c_str());
      std::_Exit(3);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(3), "a.bin: it was truncated");
}

// write(2) reads from the mapping itself and only returns EFAULT.
TEST_F(MappedRangeTest, WritingFromATruncatedMappingNamesTheFile) {
  const auto child = [&] {
    const MappedFile file(path);
    fs::resize_file(path, 2 * page);
    try {
      FileWriter writer(scratch / "copy.bin");
      writer.write(file.bytes());
    } catch (const Error& error) {
      fprintf(stderr, "%s\n", error.message().c_str());
      std::_Exit(exit_code(error.kind()));
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(exit_code(ErrorKind::corrupt)), "a.bin: it was truncated");
}

// Threads of the pool block signals that are meant for other threads; a fault is delivered to the faulting thread.
TEST_F(MappedRangeTest, ThreadsThatBlockSignalsAreGuardedToo) {
  const auto child = [&] {
    const MappedFile file(path);
    fs::resize_file(path, page);
    ThreadPool pool(3);
    pool.parallel_for(0, 8, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t expected = i == 0 ? static_cast<int64_t>(page) * 'a' : 0;
        REQUIRE(sum(file.bytes().subspan(static_cast<size_t>(i) * page, page)) == expected);
      }
    });
    REQUIRE(file.range()->faulty());
    std::_Exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST_F(MappedRangeTest, ManyFilesAreGuardedAndTheirSlotsReused) {
  const auto child = [&] {
    for (int round = 0; round < 3; ++round) {
      std::vector<MappedFile> files;
      for (int i = 0; i < 200; ++i) {
        const fs::path each = scratch / ("f" + std::to_string(i));
        std::ofstream(each) << std::string(2 * page, 'b');
        files.emplace_back(each);
      }
      const auto chosen = static_cast<size_t>(round) * 99;
      fs::resize_file(files[chosen].path(), 0);
      REQUIRE(sum(files[chosen].bytes()) == 0);
      for (size_t i = 0; i < files.size(); ++i) REQUIRE(files[i].range()->faulty() == (i == chosen));
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

// The handler passes on bus errors outside guarded mappings.
TEST_F(MappedRangeTest, OtherBusErrorsEndTheProcess) {
  if (sanitized) return;  // sanitizers have their own handler
  const MappedFile file(path);
  const auto child = [] {
    ::raise(SIGBUS);
    std::_Exit(0);
  };
  EXPECT_EXIT(child(), testing::KilledBySignal(SIGBUS), "");
}

TEST_F(MappedRangeTest, WritesToTheFileAreReported) {
  const MappedFile file(path);
  FileWatch watch;
  watch.add(file);
  EXPECT_FALSE(watch.fault());
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  ASSERT_TRUE(watch.fault());
  EXPECT_NE(watch.fault()->what.find("written to"), std::string::npos);
  FileWatch longer;
  const MappedFile again(path);
  longer.add(again);
  EXPECT_FALSE(longer.fault());
  fs::resize_file(path, 9 * page);
  EXPECT_NE(longer.fault()->what.find(std::to_string(9 * page)), std::string::npos);
}

TEST_F(MappedRangeTest, ReplacingOrRemovingTheFileIsNotAFault) {
  const MappedFile file(path);
  FileWatch watch;
  watch.add(file);
  write_file(path, "another");  // by rename
  EXPECT_FALSE(watch.fault());
  EXPECT_EQ(watch.replaced(), path);
  fs::remove(path);
  EXPECT_FALSE(watch.fault());
  EXPECT_EQ(watch.replaced(), path);
  EXPECT_EQ(sum(file.bytes()), static_cast<int64_t>(8 * page) * 'a');
}

TEST_F(MappedRangeTest, WritesThroughAnotherNameAreReported) {
  const MappedFile file(path);
  FileWatch watch;
  watch.add(file);
  EXPECT_FALSE(watch.replaced());
  fs::rename(path, scratch / "old.bin");
  write_file(path, std::string(8 * page, 'b'));
  EXPECT_FALSE(watch.fault());
  fs::last_write_time(scratch / "old.bin", fs::last_write_time(scratch / "old.bin") + std::chrono::seconds(1));
  ASSERT_TRUE(watch.fault());
  EXPECT_EQ(watch.fault()->file, path);
  EXPECT_NE(watch.fault()->what.find("written to"), std::string::npos);
}

TEST_F(MappedRangeTest, AFileReplacedBeforeWatchingIsRefused) {
  const MappedFile file(path);
  write_file(path, std::string(8 * page, 'b'));
  FileWatch watch;
  try {
    watch.add(file);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  }
  EXPECT_EQ(watch.size(), 0);
}

}  // namespace
}  // namespace ingot
