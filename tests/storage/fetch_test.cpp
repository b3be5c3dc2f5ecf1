#include "storage/fetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"
#include "tests/storage/loopback_server.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

std::string noise(size_t size) {
  RandomStream random(7);
  std::string text;
  for (size_t i = 0; i < size; ++i) text += static_cast<char>(random.next_u32());
  return text;
}

std::string digest(const std::string& text) { return sha256_hex(std::as_bytes(std::span(text.data(), text.size()))); }

// The first byte that a request's Range asks for; 0 without a Range.
size_t range_of(const std::string& head) {
  const size_t at = head.find("Range: bytes=");
  return at == std::string::npos ? 0 : static_cast<size_t>(std::strtoull(head.c_str() + at + 13, nullptr, 10));
}

// A valid answer of a server with range support. The connection breaks after `cut` bytes of the body.
std::string file_answer(const std::string& body, const std::string& head, const std::string& etag,
                        size_t cut = std::string::npos) {
  const bool same = head.find("If-Range: " + etag + "\r\n") != std::string::npos;
  const size_t first = same ? range_of(head) : 0;
  std::string reply = first > 0 ? "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " + std::to_string(first) +
                                      "-" + std::to_string(body.size() - 1) + "/" + std::to_string(body.size()) + "\r\n"
                                : "HTTP/1.1 200 OK\r\n";
  reply +=
      "ETag: " + etag + "\r\nContent-Length: " + std::to_string(body.size() - first) + "\r\nConnection: close\r\n\r\n";
  return reply + body.substr(first, cut);
}

std::string error_answer(int status, const std::string& body, const std::string& more = "") {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\n" + more + "Content-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

class Fetch : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("no_proxy", "127.0.0.1", 1);
    quick_.first_wait_s = 0.001;
    quick_.max_attempts = 3;
  }

  Error error_of(const std::string& uri) {
    return ingot::error_of([&] { fetch(uri, scratch_ / "out", quick_); });
  }

  Scratch scratch_;
  FetchOptions quick_;
  const std::string body_ = noise(300'000);
};

TEST_F(Fetch, FetchesAFileWithProgress) {
  LoopbackServer server([&](const std::string& head, int) { return file_answer(body_, head, "\"1\""); });
  uint64_t done = 0;
  uint64_t total = 0;
  quick_.progress = [&](uint64_t d, uint64_t t) {
    done = d;
    total = t;
    return true;
  };
  quick_.sha256 = digest(body_);
  quick_.headers = {"Authorization: Bearer secret"};
  fetch(server.url("/a/file.bin"), scratch_ / "out", quick_);
  EXPECT_EQ(read_file(scratch_ / "out"), body_);
  EXPECT_EQ(done, body_.size());
  EXPECT_EQ(total, body_.size());
  EXPECT_NE(server.heads()[0].find("GET /a/file.bin "), std::string::npos);
  EXPECT_NE(server.heads()[0].find("Authorization: Bearer secret\r\n"), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch_.folder()), fs::directory_iterator()), 1);
}

// Ten broken connections exceed max_attempts, but each one delivered some bytes.
TEST_F(Fetch, BrokenConnectionsAreResumed) {
  LoopbackServer server([&](const std::string& head, int) { return file_answer(body_, head, "\"1\"", 30'000); });
  fetch(server.url("/f"), scratch_ / "out", quick_);
  EXPECT_EQ(read_file(scratch_ / "out"), body_);
  const auto heads = server.heads();
  ASSERT_EQ(heads.size(), 10U);
  EXPECT_EQ(range_of(heads[0]), 0U);
  EXPECT_EQ(range_of(heads[9]), 270'000U);
}

TEST_F(Fetch, AnotherCallResumes) {
  LoopbackServer server([&](const std::string& head, int number) {
    return number == 0 ? file_answer(body_, head, "\"1\"", 100'000) : std::string();
  });
  EXPECT_EQ(error_of(server.url("/f")).kind(), ErrorKind::unavailable);
  EXPECT_EQ(fs::file_size(scratch_ / "out.partial"), 100'000U);
  EXPECT_FALSE(fs::exists(scratch_ / "out"));
  // Another port is another address, whose partial download is not used.
  LoopbackServer other([&](const std::string& head, int) { return file_answer(body_, head, "\"1\""); });
  fetch(other.url("/f"), scratch_ / "out", quick_);
  EXPECT_EQ(range_of(other.heads()[0]), 0U);
  EXPECT_EQ(read_file(scratch_ / "out"), body_);
}

TEST_F(Fetch, SecondCallResumesSameServer) {
  std::atomic<bool> broken = true;
  LoopbackServer server([&](const std::string& head, int number) {
    if (number == 0) return file_answer(body_, head, "\"1\"", 100'000);
    return broken ? std::string() : file_answer(body_, head, "\"1\"");
  });
  error_of(server.url("/f"));
  const size_t before = server.heads().size();
  broken = false;
  fetch(server.url("/f"), scratch_ / "out", quick_);
  EXPECT_EQ(server.heads().size(), before + 1);
  EXPECT_EQ(range_of(server.heads().back()), 100'000U);
  EXPECT_EQ(read_file(scratch_ / "out"), body_);
}

// The file changes between two attempts: the result is not a mixture.
TEST_F(Fetch, ChangedFileStartsOver) {
  const std::string newer = noise(200'000) + "new";
  LoopbackServer server([&](const std::string& head, int number) {
    return number == 0 ? file_answer(body_, head, "\"1\"", 100'000) : file_answer(newer, head, "\"2\"");
  });
  fetch(server.url("/f"), scratch_ / "out", quick_);
  EXPECT_EQ(read_file(scratch_ / "out"), newer);
}

TEST_F(Fetch, WithoutAValidatorNothingIsResumed) {
  LoopbackServer server([&](const std::string&, int number) {
    return "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + body_.substr(0, number == 0 ? 1000 : body_.size());
  });
  fetch(server.url("/f"), scratch_ / "out", quick_);
  EXPECT_EQ(read_file(scratch_ / "out"), body_);
  EXPECT_EQ(server.heads()[1].find("Range"), std::string::npos);
}

TEST_F(Fetch, AWrongContentRangeIsRejected) {
  LoopbackServer server([&](const std::string& head, int number) {
    if (number == 0) return file_answer(body_, head, "\"1\"", 1000);
    if (number == 1)
      return std::string("HTTP/1.1 206 X\r\nContent-Range: bytes 5-9/300000\r\nContent-Length: 5\r\n\r\nabcde");
    if (number == 2) return file_answer(body_, head, "\"1\"", 1000);
    return file_answer(body_, head, "\"1\"");
  });
  fetch(server.url("/f"), scratch_ / "out", quick_);
  EXPECT_EQ(read_file(scratch_ / "out"), body_);
}

// The server ignores If-Range: the rest that it sends belongs to another version.
TEST_F(Fetch, TheRestOfAnotherVersionIsRejected) {
  const std::string newer = noise(200'000) + std::string(100'000, 'n');
  for (const bool tagged : {true, false}) {
    fs::remove(scratch_ / "out");
    LoopbackServer server([&](const std::string& head, int number) {
      const std::string& body = number == 0 ? body_ : newer;
      const std::string version =
          tagged ? "ETag: \"" + std::to_string(number > 0) + "\"\r\n"
                 : "Last-Modified: Mon, 0" + std::to_string(1 + (number > 0)) + " Jan 2024 00:00:00 GMT\r\n";
      const size_t first = range_of(head);
      std::string reply = first > 0
                              ? "HTTP/1.1 206 X\r\nContent-Range: bytes " + std::to_string(first) + "-299999/300000\r\n"
                              : "HTTP/1.1 200 OK\r\n";
      reply += version + "Content-Length: " + std::to_string(300'000 - first) + "\r\nConnection: close\r\n\r\n";
      return reply + body.substr(first, number == 0 ? 100'000 : body.size());
    });
    fetch(server.url("/f"), scratch_ / "out", quick_);
    EXPECT_EQ(read_file(scratch_ / "out"), newer);
    EXPECT_EQ(range_of(server.heads().at(1)), 100'000U);
    EXPECT_EQ(server.heads().size(), 3U);
  }
}

TEST_F(Fetch, RangeBeyondTheEndStartsOver) {
  LoopbackServer server([&](const std::string& head, int number) {
    if (number == 0) return file_answer(body_, head, "\"1\"", 1000);
    if (number == 1) return error_answer(416, "");
    return file_answer(body_, head, "\"1\"");
  });
  fetch(server.url("/f"), scratch_ / "out", quick_);
  EXPECT_EQ(read_file(scratch_ / "out"), body_);
}

TEST_F(Fetch, ABusyServerIsRetried) {
  LoopbackServer server([&](const std::string& head, int number) {
    return number < 2 ? error_answer(503, "busy") : file_answer(body_, head, "\"1\"");
  });
  fetch(server.url("/f"), scratch_ / "out", quick_);
  EXPECT_EQ(server.heads().size(), 3U);
}

TEST_F(Fetch, GivesUpWithAReason) {
  LoopbackServer server([&](const std::string&, int) { return error_answer(503, "come back later"); });
  const Error error = error_of(server.url("/f?token=secret"));
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_EQ(error.message(), server.url("/f") + ": the server answered 503: come back later");
  EXPECT_NE(error.hint().find("3 attempts"), std::string::npos);
  EXPECT_EQ(server.heads().size(), 3U);
}

TEST_F(Fetch, MissingAndForbiddenFilesAreNotRetried) {
  LoopbackServer server([&](const std::string& head, int) {
    return error_answer(head.find("/gone") != std::string::npos ? 404 : 403, "<html>");
  });
  EXPECT_EQ(error_of(server.url("/gone")).kind(), ErrorKind::not_found);
  EXPECT_EQ(error_of(server.url("/secret")).kind(), ErrorKind::unavailable);
  EXPECT_EQ(server.heads().size(), 2U);
  EXPECT_TRUE(fs::is_empty(scratch_.folder()));
}

TEST_F(Fetch, AClosedPortIsAnError) {
  const LoopbackSocket deaf(false);
  EXPECT_EQ(error_of(deaf.url() + "/f").kind(), ErrorKind::unavailable);
}

TEST_F(Fetch, AWrongChecksumLeavesNoFile) {
  LoopbackServer server([&](const std::string& head, int) { return file_answer(body_, head, "\"1\""); });
  quick_.sha256 = digest("something else");
  EXPECT_EQ(error_of(server.url("/f")).kind(), ErrorKind::corrupt);
  EXPECT_TRUE(fs::is_empty(scratch_.folder()));
  quick_.sha256 = digest(body_);
  for (char& c : quick_.sha256) c = static_cast<char>(std::toupper(c));
  fetch(server.url("/f"), scratch_ / "out", quick_);
}

TEST_F(Fetch, RedirectsAreFollowedWithinHttp) {
  LoopbackServer server([&](const std::string& head, int) {
    if (head.starts_with("GET /moved ")) return error_answer(302, "elsewhere", "ETag: \"no\"\r\nLocation: /here\r\n");
    if (head.starts_with("GET /disk ")) return error_answer(302, "", "Location: file:///etc/passwd\r\n");
    return file_answer(body_, head, "\"1\"");
  });
  fetch(server.url("/moved"), scratch_ / "out", quick_);
  EXPECT_EQ(read_file(scratch_ / "out"), body_);
  EXPECT_EQ(error_of(server.url("/disk")).kind(), ErrorKind::unavailable);
}

TEST_F(Fetch, StoppingKeepsThePartialFile) {
  LoopbackServer server([&](const std::string& head, int) { return file_answer(body_, head, "\"1\""); });
  quick_.progress = [](uint64_t, uint64_t) { return false; };
  EXPECT_EQ(error_of(server.url("/f")).kind(), ErrorKind::unavailable);
  EXPECT_FALSE(fs::exists(scratch_ / "out"));
}

TEST_F(Fetch, FetchesAnEmptyFile) {
  LoopbackServer server([&](const std::string& head, int) { return file_answer("", head, "\"1\""); });
  fetch(server.url("/f"), scratch_ / "out", quick_);
  EXPECT_EQ(read_file(scratch_ / "out"), "");
}

TEST_F(Fetch, AnUnwritableFolderIsNamed) {
  LoopbackServer server([&](const std::string& head, int) { return file_answer(body_, head, "\"1\""); });
  write_file(scratch_ / "a", "x");
  EXPECT_THROW(fetch(server.url("/f"), scratch_ / "a" / "out", quick_), Error);
  EXPECT_TRUE(server.heads().empty());
}

TEST_F(Fetch, AFullDiskIsAnError) {
  LoopbackServer server([&](const std::string& head, int) { return file_answer(body_, head, "\"1\""); });
  fs::create_symlink("/dev/full", scratch_ / "out.partial");
  const Error error = error_of(server.url("/f"));
  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_NE(error.message().find((scratch_ / "out").string()), std::string::npos);
}

TEST_F(Fetch, CopiesLocalFiles) {
  write_file(scratch_ / "a b", body_);
  quick_.sha256 = digest(body_);
  fetch((scratch_ / "a b").string(), scratch_ / "out", quick_);
  EXPECT_EQ(read_file(scratch_ / "out"), body_);
  fetch("file://" + (scratch_ / "a%20b").string(), scratch_ / "out2", quick_);
  EXPECT_EQ(read_file(scratch_ / "out2"), body_);
  EXPECT_EQ(error_of((scratch_ / "none").string()).kind(), ErrorKind::not_found);
  quick_.sha256 = digest("x");
  fs::remove(scratch_ / "out");
  EXPECT_EQ(error_of((scratch_ / "a b").string()).kind(), ErrorKind::corrupt);
  EXPECT_FALSE(fs::exists(scratch_ / "out"));
}

TEST_F(Fetch, FetchesText) {
  LoopbackServer server([&](const std::string& head, int number) {
    return number == 0 ? file_answer("hello", head, "\"1\"", 2) : file_answer("hello", head, "\"1\"");
  });
  EXPECT_EQ(fetch_text(server.url("/t"), 5, quick_), "hello");
  EXPECT_THROW(fetch_text(server.url("/t"), 4, quick_), Error);
}

}  // namespace
}  // namespace ingot
