#include "storage/file_cache.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "tests/base/few_threads.h"
#include "tests/base/scratch.h"
#include "tests/sanitized.h"
#include "tests/storage/loopback_server.h"
#include "tests/storage/s3_server.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Fault = S3Server::Fault;

class FileCacheTest : public testing::Test {
 protected:
  FileCacheTest() {
    server_.announce();
    settings_.folder = scratch_ / "cache";
    settings_.limit = 3000;
    settings_.attempts.first_wait_s = 0.001;
    settings_.attempts.max_attempts = 3;
    for (int i = 0; i < 20; ++i) server_.put(key(i), std::string(1000, static_cast<char>('a' + i)));
  }
  static std::string key(int i) { return "bucket/shard" + std::to_string(i); }
  static RemoteFile file(int i, const std::string& version = "1") { return {"s3://" + key(i), version, 1000}; }
  FileCache cache() const { return FileCache(settings_); }
  size_t files() const {
    size_t number = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(settings_.folder)) ++number;
    return number;
  }
  size_t num_requests() { return server_.requests().size(); }

  S3Server server_;
  Scratch scratch_;
  FileCache::Settings settings_;
};

TEST_F(FileCacheTest, FetchedFilesAreCached) {
  EXPECT_EQ(read_file(cache().get(file(0)).path()), std::string(1000, 'a'));
  EXPECT_EQ(read_file(cache().get(file(0)).path()), std::string(1000, 'a'));
  EXPECT_EQ(num_requests(), 1U);
  cache().get(file(0, "2"));  // a new version
  EXPECT_EQ(num_requests(), 2U);
  {
    const FileCache::File held = cache().get(file(0));
    const fs::path& path = held.path();
    FileCache::drop(held);
    EXPECT_FALSE(fs::exists(path));
    const FileCache::File again = cache().get(file(0));
    EXPECT_EQ(num_requests(), 3U);
    FileCache::drop(held);  // the new version in its place is not removed
    EXPECT_TRUE(fs::exists(path));
    EXPECT_EQ(again.shared().bytes(), 1000U);
  }
  cache().get(file(0));
  EXPECT_EQ(num_requests(), 3U);
  EXPECT_EQ(files(), 2U);  // no lock files remain
}

TEST_F(FileCacheTest, EvictsTheLeastRecentlyUsed) {
  for (int i = 0; i < 3; ++i) {
    const FileCache::File held = cache().get(file(i));
    fs::last_write_time(held.path(), fs::file_time_type::clock::now() - std::chrono::hours(3 - i));
  }
  cache().get(file(0));
  cache().get(file(3));  // evicts 1
  EXPECT_EQ(files(), 3U);
  EXPECT_EQ(num_requests(), 4U);
  cache().get(file(0));
  cache().get(file(2));
  EXPECT_EQ(num_requests(), 4U);
  cache().get(file(1));
  EXPECT_EQ(num_requests(), 5U);
  EXPECT_EQ(files(), 3U);
}

TEST_F(FileCacheTest, FilesInUseAreNotEvicted) {
  std::vector<FileCache::File> held;
  for (int i = 0; i < 3; ++i) held.push_back(cache().get(file(i)));
  try {
    cache().get(file(3));
    ADD_FAILURE() << "expected an error: the cache is full";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_NE(error.message().find("s3://bucket/shard3"), std::string::npos);
    EXPECT_NE(error.hint().find("INGOT_CACHE_BYTES"), std::string::npos);
  }
  held.pop_back();
  cache().get(file(3));
  for (const FileCache::File& each : held) EXPECT_EQ(read_file(each.path()).size(), 1000U);
  EXPECT_EQ(files(), 3U);
}

// The bytes of a partial download are not counted in addition to the whole file.
TEST_F(FileCacheTest, AnInterruptedFetchIsCountedOnce) {
  settings_.limit = 1000;
  std::atomic<bool> over = false;
  server_.fault = [&](const S3Server::Request&, size_t number) {
    if (over) return Fault::none;
    return number == 0 ? Fault::truncate : Fault::reset;
  };
  EXPECT_THROW(cache().get(file(0)), Error);
  EXPECT_EQ(files(), 2U);  // the partial file, and the file that names its source
  over = true;
  EXPECT_EQ(read_file(cache().get(file(0)).path()), std::string(1000, 'a'));
  EXPECT_EQ(server_.requests().back().headers.at("range"), "bytes=500-");
}

// A file that is being fetched counts with its whole size from the beginning.
TEST_F(FileCacheTest, AFetchReservesItsSpace) {
  settings_.limit = 1500;
  std::atomic<bool> go = false;
  server_.fault = [&](const S3Server::Request&, size_t) {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Fault::none;
  };
  std::thread first([&] { EXPECT_EQ(read_file(cache().get(file(0)).path())[0], 'a'); });
  while (num_requests() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  FileCache waiting = cache();
  waiting.go_on_while([calls = 0]() mutable { return ++calls < 20; });
  try {
    waiting.get(file(1));
    ADD_FAILURE() << "expected an error: the cache is full";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  }
  EXPECT_EQ(num_requests(), 1U);
  // A killed process's files are not locks and reserve no space.
  write_file(settings_.folder / "0123-killed.lock", "1000\n");
  go = true;
  first.join();
  EXPECT_EQ(read_file(cache().get(file(1)).path())[0], 'b');
  EXPECT_EQ(files(), 2U);  // the killed process's files, too
}

TEST_F(FileCacheTest, ConcurrentReadersFetchOnce) {
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2; ++i) right += read_file(cache().get(file(i)).path())[0] == 'a' + i ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 16);
  EXPECT_EQ(num_requests(), 2U);
}

TEST_F(FileCacheTest, AFailedFetchLeavesNoFile) {
  EXPECT_THROW(cache().get({"s3://bucket/gone", "1", 5}), Error);
  server_.put("bucket/short", "12345");
  try {
    cache().get({"s3://bucket/short", "1", 6});
    ADD_FAILURE() << "expected an error: the file is shorter";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    EXPECT_EQ(error.message(), "s3://bucket/short: downloaded 5 bytes, expected 6");
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(FileCacheTest, FindsSizeAndVersion) {
  const std::optional<RemoteFile> found = find_remote("s3://" + key(0));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->bytes, 1000U);
  EXPECT_NE(found->version, find_remote("s3://" + key(1))->version);
  EXPECT_FALSE(find_remote("s3://bucket/gone").has_value());
}

// Without an ETag the modification time is the version.
TEST_F(FileCacheTest, ARewrittenFileIsFetchedAgain) {
  std::atomic<int> written = 1;
  LoopbackServer web([&](const std::string& head, int) {
    const std::string body = fmt::format("text {}", written.load());
    return fmt::format(
        "HTTP/1.1 200 X\r\nLast-Modified: Sun, 22 Nov 2026 10:00:0{} GMT\r\nContent-Length: {}\r\n"
        "Connection: close\r\n\r\n{}",
        written.load(), body.size(), head.starts_with("HEAD") ? "" : body);
  });
  const auto read = [&] { return read_file(cache().get(*find_remote(web.url("/a"))).path()); };
  EXPECT_EQ(read(), "text 1");
  EXPECT_EQ(read(), "text 1");
  EXPECT_EQ(web.heads().size(), 3U);  // two version checks, one fetch
  written = 2;
  EXPECT_EQ(read(), "text 2");
}

TEST_F(FileCacheTest, AForbiddenFileDoesNotExist) {
  EXPECT_TRUE(input_exists("s3://" + key(0)));
  EXPECT_FALSE(input_exists("s3://bucket/gone"));
  ::setenv("AWS_SECRET_ACCESS_KEY", "another", 1);  // 403
  EXPECT_FALSE(input_exists("s3://" + key(0)));
  EXPECT_THROW(find_remote("s3://" + key(0)), Error);
  for (const int status : {401, 403, 405, 404}) {
    LoopbackServer web([status](const std::string&, int) {
      return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    });
    EXPECT_FALSE(input_exists(web.url("/a"))) << status;
    EXPECT_EQ(find_remote(web.url("/a")).has_value(), status != 404) << status;
  }
}

TEST_F(FileCacheTest, SizeLimitIsParsed) {
  const auto limit = [](const char* text) {
    ::setenv("INGOT_CACHE_BYTES", text, 1);
    return FileCache::from_environment().limit;
  };
  EXPECT_EQ(limit("123"), 123U);
  EXPECT_EQ(limit("20G"), uint64_t{20} << 30);
  for (const char* bad : {"", "0", "-1", "1X", "G", "1GB", "99999999999999999999", "99999999999T"}) {
    if (*bad != 0) EXPECT_THROW(limit(bad), Error) << bad;
  }
  ::unsetenv("INGOT_CACHE_BYTES");
}

// Files arrive in order, several are fetched at once, despite faults, with space for three.
TEST_F(FileCacheTest, PrefetchGivesFilesInOrder) {
  std::atomic<bool> together = false;
  server_.fault = S3Server::passing([&](size_t number) {
    // The first request waits for a second one.
    for (int i = 0; i < 1000 && !together; ++i) {
      if (server_.max_at_once() > 1) together = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return number % 3 == 1 ? Fault::busy : number % 5 == 2 ? Fault::truncate : Fault::none;
  });
  std::vector<RemoteFile> requested;
  for (int i = 0; i < 20; ++i) requested.push_back(file(i));
  FilePrefetch prefetch(cache(), requested.size(), [&](size_t i) { return requested[i]; }, 2, 2);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(read_file(prefetch.next().path()), std::string(1000, static_cast<char>('a' + i)));
  EXPECT_TRUE(together);
  EXPECT_LE(files(), 4U);
}

TEST_F(FileCacheTest, PrefetchWorksWithSpaceForOneFile) {
  settings_.limit = 1500;
  std::vector<RemoteFile> requested;
  for (int i = 0; i < 12; ++i) requested.push_back(file(i));
  FilePrefetch prefetch(cache(), requested.size(), [&](size_t i) { return requested[i]; }, 8, 4);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(read_file(prefetch.next().path())[0], static_cast<char>('a' + i));
}

TEST_F(FileCacheTest, PrefetchReportsErrorsInOrder) {
  std::vector<RemoteFile> requested = {file(0), {"s3://bucket/gone", "1", 5}, file(2)};
  const auto each = [&](size_t i) { return requested[i]; };
  FilePrefetch prefetch(cache(), requested.size(), each);
  EXPECT_EQ(read_file(prefetch.next().path())[0], 'a');
  EXPECT_THROW(prefetch.next(), Error);
  EXPECT_EQ(read_file(prefetch.next().path())[0], 'c');
  FilePrefetch unused(cache(), requested.size(), each);  // destroyed without use
}

TEST(FilePrefetch, ARefusedThreadIsAnError) {
  if (sanitized) return;  // sanitizers need more memory than the limit leaves
  const Scratch scratch;
  const auto work = [&] {
    const FileCache cache({.folder = scratch / "cache"});
    const FilePrefetch files(cache, 3, [](size_t) { return RemoteFile(); }, 0, 4);
  };
  EXPECT_EXIT(without_threads(work), testing::ExitedWithCode(7), "cannot start a thread for fetching files");
}

}  // namespace
}  // namespace ingot
