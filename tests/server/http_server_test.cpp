// HTTP from hostile clients: heads, bodies and their sizes.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/base/few_threads.h"
#include "tests/sanitized.h"
#include "tests/server/echo_server.h"

namespace ingot::server {
namespace {

TEST_F(HttpServerTest, AnswersInOrderOnOneConnection) {
  RawClient client(port());
  for (int i = 0; i < 3; ++i) {
    const std::string body = "body" + std::to_string(i);
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n" + body);
    const Answer answer = client.answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, body);
  }
  client.send(
      "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nbGET /3 "
      "HTTP/1.1\r\nHost: a\r\nConnection: "
      "close\r\n\r\n");
  EXPECT_EQ(client.answer().body, "");
  EXPECT_EQ(client.answer().body, "b");
  EXPECT_EQ(client.answer().headers["connection"], "close");
  EXPECT_TRUE(client.ends());
  EXPECT_EQ(handler.seen.log.lock()->heads.back().target, "/3");
}

TEST_F(HttpServerTest, HeadsMayArriveInPieces) {
  RawClient client(port());
  for (const char c : std::string("POST /x?q=1 HTTP/1.1\r\nHost: a\r\nX-Some: Thing\r\nContent-Length: 3\r\n\r\nabc")) {
    client.send(std::string(1, c));
  }
  EXPECT_EQ(client.answer().body, "abc");
  const auto log = handler.seen.log.lock();
  EXPECT_EQ(log->heads[0].target, "/x?q=1");
  EXPECT_EQ(log->heads[0].header("x-some"), "Thing");
  EXPECT_EQ(log->heads[0].peer, "127.0.0.1");
}

TEST_F(HttpServerTest, AcceptsChunkedBodiesAndExpectContinue) {
  EXPECT_EQ(
      ask("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").body,
      "abcde");
  RawClient client(port());
  client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_to("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_EQ(client.answer().body, "ok");
}

TEST_F(HttpServerTest, InvalidHttpIsRefused) {
  const std::string_view cases[] = {
      "\r\n\r\n\r\n",
      "hello\r\n\r\n",
      "GET\r\n\r\n",
      "GET / HTTP/2.0\r\n\r\n",
      "GET /\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a\r\n: no name\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a\r\nspace : x\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1x\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\nabc",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\nContent-Length: 3\r\n\r\nabc",
      "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
      "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nb",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nb",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS greeting\r\n\r\n",
  };
  for (const std::string_view bytes : cases) EXPECT_EQ(ask(bytes).status, 400) << bytes;
  EXPECT_EQ(ask("GET /still/here HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost:\r\n\r\n").status, 200) << "an authority may be empty";
  EXPECT_EQ(ask("GET / HTTP/1.0\r\n\r\n").status, 200) << "HTTP/1.0 requires no Host";
}

TEST_F(HttpServerTest, HeaderFloodsAreRefused) {
  settings.limits.header_bytes = 4096;
  settings.limits.headers = 20;
  settings.limits.linger_s = 0.05;
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(5000, 'a') + "\r\n\r\n").status, 431);
  EXPECT_EQ(ask("GET /" + std::string(100000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n").status, 431);
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 21; ++i) many += "a" + std::to_string(i) + ": b\r\n";
  EXPECT_EQ(ask(many + "\r\n").status, 431);
  RawClient endless(port());
  endless.send("GET / HTTP/1.1\r\nHost: a\r\n");
  while (endless.send("x-more: " + std::string(1000, 'y') + "\r\n")) {
  }
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
}

TEST_F(HttpServerTest, HugeBodiesAreRefused) {
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n").status, 413);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\nabc").status, 413);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n").status, 413);
  std::string pieces = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 11; ++i) pieces += "64\r\n" + std::string(100, 'z') + "\r\n";
  EXPECT_EQ(ask(pieces).status, 413);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'a')).body.size(),
            1000U);
  // A body of a gigabyte that is not read: the client gets the answer, and the connection closes.
  settings.limits.linger_s = 0.05;
  server.reset();
  RawClient huge(port());
  huge.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n");
  const std::string piece(1 << 20, 'a');
  int64_t sent = 0;
  while (sent < (1 << 30) && huge.send(piece)) sent += static_cast<int64_t>(piece.size());
  EXPECT_LT(sent, 1 << 30);
}

TEST_F(HttpServerTest, EndlessChunkSizesAndTrailersAreRefused) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(ask(head + "5;" + std::string(1 << 20, 'a')).status, 400);
  EXPECT_EQ(ask(head + "0\r\nX: " + std::string(1 << 20, 'a')).status, 400);
  EXPECT_EQ(ask(head + "1;a=b\r\nz\r\n0\r\nX: y\r\n\r\n").body, "z");
}

TEST_F(HttpServerTest, AHeadCanBeRefusedBeforeItsBody) {
  RawClient client(port());
  client.send("GET /refused HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.answer().status, 403);
  client.send("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(client.answer().status, 403);  // before any byte of the body
  EXPECT_TRUE(client.ends());
}

TEST_F(HttpServerTest, AnswersHttp10AndHead) {
  RawClient old(port());
  old.send("POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab");
  EXPECT_EQ(old.answer().body, "ab");
  EXPECT_TRUE(old.ends());
}

TEST_F(HttpServerTest, MissingThreadsAreAnError) {
  if (sanitized) return;  // sanitizers need more memory than the limit leaves
  settings.workers = 1;   // it gets the only thread
  EXPECT_EXIT(without_threads([&] { const HttpServer made(settings, handler); }), testing::ExitedWithCode(7),
              "cannot start a thread for");
}

TEST_F(HttpServerTest, InvalidSettingsAreErrors) {
  const auto kind_of = [&](HttpSettings wrong) {
    try {
      HttpServer made(std::move(wrong), handler);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  HttpSettings taken;
  taken.port = port();
  EXPECT_EQ(kind_of(taken), ErrorKind::unavailable);
  HttpSettings name;
  name.host = "not-an-address";
  EXPECT_EQ(kind_of(name), ErrorKind::usage);
  HttpSettings half;
  half.certificate = "only.pem";
  EXPECT_EQ(kind_of(half), ErrorKind::usage);
}

}  // namespace
}  // namespace ingot::server
