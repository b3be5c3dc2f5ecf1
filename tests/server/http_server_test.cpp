// Connections, limits and time-outs, by clients that mean harm. The handler here answers with what it was sent.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "base/mutex.h"
#include "tests/base/few_threads.h"
#include "tests/sanitized.h"
#include "tests/server/raw_client.h"
#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

struct Log {
  std::vector<RequestHead> heads;
  std::vector<bool> whole;          // of the answers that ended
  std::vector<std::string> bodies;  // that were looked at
  int held = 0;                     // answers to /held, and looks at /late, that have been begun
  bool may_end = false;
};

// What tests look at and wait for.
struct Seen {
  Guarded<Log> log;

  void wait_for_ends(size_t count) {
    auto held = log.lock();
    EXPECT_TRUE(held.wait_for(60, [&](const Log& l) { return l.whole.size() >= count; }));
  }
};

// /refused is refused by its head, /stream streams pieces without end, /held waits until it may end, and so does the
// answer of /late, /quick is quick, the end of /throws throws; everything else gets its body back.
class Echo : public Exchange {
 public:
  Echo(Seen& seen, RequestHead head) : seen_(seen), target_(head.target) {
    seen.log.lock()->heads.push_back(std::move(head));
    seen.log.notify_all();
    if (target_ == "/refused") refuse(403);
  }
  std::optional<size_t> body_limit() const override {
    if (ready_) return std::nullopt;
    return 1000;
  }
  void refuse(int status) override {
    status_ = status;
    ready_ = true;
  }
  bool quick() const override { return target_ == "/quick"; }
  void receive(std::string body, std::function<void()> wake) override {
    if (target_ == "/held") {
      auto held = seen_.log.lock();
      ++held->held;
      seen_.log.notify_all();
      held.wait([](const Log& l) { return l.may_end; });
    }
    seen_.log.lock()->bodies.push_back(body);
    body_ = std::move(body);
    ready_ = true;
    wake();
  }
  Part poll() override {
    Part part;
    if (!ready_) return part;
    if (target_ == "/late") {
      auto held = seen_.log.lock();
      ++held->held;
      seen_.log.notify_all();
      if (!held->may_end) return part;
    }
    part.head.emplace();
    part.head->status = status_;
    if (target_ == "/stream") {
      if (!begun_) part.head->streamed = true;
      if (begun_) part.head.reset();
      begun_ = true;
      part.bytes = std::string(100000, 'x');
      return part;
    }
    part.bytes = body_;
    part.end = true;
    return part;
  }
  void closed(uint64_t, bool whole) override {
    seen_.log.lock()->whole.push_back(whole);
    seen_.log.notify_all();
    if (target_ == "/throws") throw std::runtime_error("no space left");
  }

 private:
  Seen& seen_;
  std::string target_;
  std::string body_;
  int status_ = 200;
  bool ready_ = false;
  bool begun_ = false;
};

class EchoHandler : public Handler {
 public:
  std::shared_ptr<Exchange> open(RequestHead head) override { return std::make_shared<Echo>(seen, std::move(head)); }
  std::pair<ReplyHead, std::string> refusal(int status, const std::string&) override {
    ReplyHead head;
    head.status = status;
    return {head, "refused"};
  }
  Seen seen;
};

struct HttpServerTest : testing::Test {
  EchoHandler handler;
  HttpSettings settings;
  std::unique_ptr<HttpServer> server;

  int port() {
    if (!server) server = std::make_unique<HttpServer>(settings, handler);
    return server->port();
  }
  Answer ask(std::string_view bytes) {
    RawClient client(port());
    client.send(bytes);
    return client.answer();
  }
  // Until the server holds so many bytes of bodies; false when that does not come within a minute.
  bool holds(size_t least, size_t most) const {
    for (int i = 0; i < 60000; ++i) {
      const size_t held = server->counts().body_bytes;
      if (held >= least && held <= most) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
};

TEST_F(HttpServerTest, KeepsAConnectionAndItsOrder) {
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

TEST_F(HttpServerTest, HeadsComeBiteByBite) {
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

TEST_F(HttpServerTest, ChunkedBodiesAndContinue) {
  EXPECT_EQ(
      ask("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").body,
      "abcde");
  RawClient client(port());
  client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_to("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_EQ(client.answer().body, "ok");
}

TEST_F(HttpServerTest, WhatIsNoHttp) {
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

TEST_F(HttpServerTest, FloodsOfHeaders) {
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

TEST_F(HttpServerTest, HugeBodies) {
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n").status, 413);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\nabc").status, 413);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n").status, 413);
  std::string pieces = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 11; ++i) pieces += "64\r\n" + std::string(100, 'z') + "\r\n";
  EXPECT_EQ(ask(pieces).status, 413);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'a')).body.size(),
            1000U);
  // A gigabyte that nobody reads: the answer comes, and then the connection ends.
  settings.limits.linger_s = 0.05;
  server.reset();
  RawClient huge(port());
  huge.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n");
  const std::string piece(1 << 20, 'a');
  int64_t sent = 0;
  while (sent < (1 << 30) && huge.send(piece)) sent += static_cast<int64_t>(piece.size());
  EXPECT_LT(sent, 1 << 30);
}

TEST_F(HttpServerTest, ChunkSizesAndTrailersWithoutEnd) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(ask(head + "5;" + std::string(1 << 20, 'a')).status, 400);
  EXPECT_EQ(ask(head + "0\r\nX: " + std::string(1 << 20, 'a')).status, 400);
  EXPECT_EQ(ask(head + "1;a=b\r\nz\r\n0\r\nX: y\r\n\r\n").body, "z");
}

TEST_F(HttpServerTest, RefusedByTheHead) {
  RawClient client(port());
  client.send("GET /refused HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.answer().status, 403);
  client.send("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(client.answer().status, 403);  // without a byte of the body
  EXPECT_TRUE(client.ends());
}

// Each limit alone: the others are longer than a client waits.
struct SlowClients : HttpServerTest {
  SlowClients() {
    settings.limits.header_s = 1000;
    settings.limits.body_s = 1000;
    settings.limits.idle_s = 1000;
  }
  void expect_time_out(std::string_view bytes) {
    Answer answer;
    while (answer.status == 0) {  // the bytes came too late themselves: then there is no answer
      RawClient slow(port());
      slow.send(bytes);
      answer = slow.answer();
      EXPECT_TRUE(slow.ends());
    }
    EXPECT_EQ(answer.status, 408);
  }
};

TEST_F(SlowClients, Heads) {
  settings.limits.header_s = 0.05;
  RawClient silent(port());
  EXPECT_TRUE(silent.ends());
  expect_time_out("GET / HTTP/1.1\r\nHost: a\r\nX: ");
}

TEST_F(SlowClients, Bodies) {
  settings.limits.body_s = 0.05;
  expect_time_out("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
}

// Of bodies that workers look at, and of those that are being read as many bytes as have come.
TEST_F(HttpServerTest, AllBodiesHaveACommonLimit) {
  settings.limits.bodies_bytes = 1500;
  settings.limits.uncounted_bytes = 0;
  const auto post = [](const char* target, size_t length, size_t sent) {
    return "POST " + std::string(target) + " HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(length) +
           "\r\n\r\n" + std::string(sent, 'a');
  };
  RawClient held(port());
  held.send(post("/held", 1000, 1000));
  {
    auto log = handler.seen.log.lock();
    EXPECT_TRUE(log.wait_for(60, [](const Log& l) { return l.held == 1; }));
  }
  EXPECT_EQ(ask(post("/", 501, 501)).status, 503);
  EXPECT_EQ(ask(post("/", 500, 500)).body.size(), 500U);
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
  handler.seen.log.lock()->may_end = true;
  handler.seen.log.notify_all();
  EXPECT_EQ(held.answer().status, 200);
  EXPECT_EQ(ask(post("/", 501, 501)).status, 200);

  RawClient slow(port());
  slow.send(post("/", 1000, 999));
  ASSERT_TRUE(holds(999, 999));
  EXPECT_EQ(ask(post("/", 502, 502)).status, 503);
  EXPECT_EQ(ask(post("/", 501, 501)).status, 200);
  slow.send("a");
  EXPECT_EQ(slow.answer().status, 200);
  EXPECT_EQ(ask(post("/", 1000, 1000)).status, 200);
  RawClient gone(port());
  gone.send(post("/", 1000, 999));
  ASSERT_TRUE(holds(999, 999));
  EXPECT_EQ(ask(post("/", 502, 502)).status, 503);
  gone.close();
  ASSERT_TRUE(holds(0, 0));
  EXPECT_EQ(ask(post("/", 1000, 1000)).status, 200);
}

// A post of 400 bytes in one chunk, and what follows it.
std::string in_chunks(const std::string& target, const std::string& rest) {
  return "POST " + target + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n190\r\n" +
         std::string(400, 'a') + "\r\n" + rest;
}

// What has memory counts, more than has come where a body grows.
TEST_F(HttpServerTest, BodiesInChunksCountAsTheyGrow) {
  settings.limits.bodies_bytes = 600;
  settings.limits.uncounted_bytes = 0;
  EXPECT_EQ(ask(in_chunks("/", "0\r\n\r\n")).body.size(), 400U);
  EXPECT_EQ(ask(in_chunks("/", "1\r\na\r\n0\r\n\r\n")).status, 503);
}

TEST_F(HttpServerTest, SmallBodiesInChunksAlwaysPass) {
  settings.limits.bodies_bytes = 1;
  settings.limits.uncounted_bytes = 401;
  EXPECT_EQ(ask(in_chunks("/", "1\r\na\r\n0\r\n\r\n")).body.size(), 401U);
  EXPECT_EQ(ask(in_chunks("/", "2\r\naa\r\n0\r\n\r\n")).status, 503);
}

// It must not wait for the client to take the answer.
TEST_F(HttpServerTest, ARefusedBodyIsGivenBackAtOnce) {
  settings.limits.bodies_bytes = 500;
  settings.limits.uncounted_bytes = 0;
  RawClient refused(port());
  refused.send(in_chunks("/late", ""));
  ASSERT_TRUE(holds(400, 500));
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'a')).status, 503);
  refused.send("no size\r\n");
  {
    auto log = handler.seen.log.lock();
    EXPECT_TRUE(log.wait_for(60, [](const Log& l) { return l.held >= 1; }));
  }
  EXPECT_EQ(server->counts().body_bytes, 0U);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n" + std::string(500, 'a')).status, 200);
  handler.seen.log.lock()->may_end = true;
  refused.send("a");  // what wakes the connection
  EXPECT_EQ(refused.answer().status, 400);
}

TEST_F(SlowClients, BetweenRequests) {
  settings.limits.idle_s = 0.05;
  RawClient idle(port());
  idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(idle.answer().status, 200);
  EXPECT_TRUE(idle.ends());
}

TEST_F(HttpServerTest, QuickAnswersDoNotWaitForWorkers) {
  settings.workers = 1;
  RawClient held(port());
  held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
  {
    auto log = handler.seen.log.lock();
    EXPECT_TRUE(log.wait_for(60, [](const Log& l) { return l.held == 1; }));
  }
  EXPECT_EQ(ask("GET /quick HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
  handler.seen.log.lock()->may_end = true;
  handler.seen.log.notify_all();
  EXPECT_EQ(held.answer().status, 200);
}

TEST_F(HttpServerTest, EndsThatThrowGiveThePlaceBack) {
  settings.limits.connections = 1;
  for (int i = 0; i < 3; ++i) {
    RawClient client(port());
    client.send("GET /throws HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(client.answer().status, 200);
    EXPECT_TRUE(client.ends());
    client.close();
    while (server->counts().connections > 0) std::this_thread::yield();
    EXPECT_EQ(server->counts().exchanges, 0);
  }
}

TEST_F(HttpServerTest, AnAccessLogThatFailsChangesNoAnswer) {
  TinyServer tiny;
  ApiSettings with_full_disk;
  with_full_disk.access_log = [](std::string_view) { throw_error(ErrorKind::resource, "no space left"); };
  Api api(std::move(with_full_disk), tiny.served, *tiny.service, nullptr, nullptr);
  HttpServer http(settings, api);
  RawClient client(http.port());
  for (int i = 0; i < 2; ++i) {
    client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(client.answer().status, 200);
  }
  client.send("no request\r\n\r\n");
  EXPECT_EQ(client.answer().status, 400);
  client.close();
  while (http.counts().connections > 0) std::this_thread::yield();
  EXPECT_EQ(http.counts().exchanges, 0);
}

TEST_F(HttpServerTest, ReadersThatDoNotRead) {
  settings.limits.write_s = 0.2;
  RawClient client(port());
  client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  handler.seen.wait_for_ends(1);
  EXPECT_FALSE(handler.seen.log.lock()->whole[0]);
}

TEST_F(HttpServerTest, ClientsThatLeave) {
  {
    RawClient client(port());
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_NE(client.read_to("xxxx"), "");
  }
  handler.seen.wait_for_ends(1);
  EXPECT_FALSE(handler.seen.log.lock()->whole[0]);
}

TEST_F(HttpServerTest, TooManyConnections) {
  settings.limits.connections = 2;
  RawClient first(port());
  RawClient second(port());
  first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  second.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(first.answer().status, 200);
  EXPECT_EQ(second.answer().status, 200);
  RawClient third(port());
  EXPECT_EQ(third.answer().status, 503);
  EXPECT_TRUE(third.ends());
  first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(first.answer().status, 200);
}

// A server with room for one: who is served, and who was refused and stays.
class FullServerTest : public HttpServerTest {
 protected:
  FullServerTest() {
    settings.limits.connections = 1;
    settings.limits.linger_s = 1000;
  }
  void fill() {
    first.emplace(port());
    first->send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_EQ(first->answer().status, 200);
    refused.emplace(port());
    EXPECT_EQ(refused->answer().status, 503);
  }
  std::optional<RawClient> first, refused;
};

TEST_F(FullServerTest, WhoIsRefusedTakesNoPlace) {
  settings.limits.connections_per_address = 1;
  fill();
  first->close();
  while (server->counts().connections > 1) std::this_thread::yield();  // the refused one reads on
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
}

TEST_F(FullServerTest, RefusalsHaveALimitToo) {
  settings.limits.refusals = 1;
  fill();
  EXPECT_TRUE(RawClient(port()).ends());  // without a word
  EXPECT_EQ(server->counts().connections, 2);
  refused->close();
  while (server->counts().connections > 1) std::this_thread::yield();
  EXPECT_EQ(RawClient(port()).answer().status, 503);
}

TEST_F(HttpServerTest, TooManyConnectionsOfOneAddress) {
  settings.limits.connections_per_address = 1;
  RawClient first(port());
  first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(first.answer().status, 200);
  RawClient second(port());
  EXPECT_EQ(second.answer().status, 503);
}

TEST_F(HttpServerTest, OldClientsAndHeads) {
  RawClient old(port());
  old.send("POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab");
  EXPECT_EQ(old.answer().body, "ab");
  EXPECT_TRUE(old.ends());
}

TEST_F(HttpServerTest, Draining) {
  RawClient idle(port());
  idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(idle.answer().status, 200);
  server->drain();
  EXPECT_TRUE(idle.ends());
  RawClient late(port());
  late.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  const Answer answer = late.answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_TRUE(late.ends());
}

// A client that has not asked yet when the server begins to drain is answered, as one is whose request has come.
TEST_F(HttpServerTest, DrainingAnswersThoseWhoAreAboutToAsk) {
  RawClient early(port());
  RawClient other(port());
  other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(other.answer().status, 200);  // the connection before it is there too
  server->drain();
  early.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(early.answer().status, 200);
  EXPECT_TRUE(early.ends());
}

TEST_F(HttpServerTest, FinishingAnswersWhatIsUnderWay) {
  settings.workers = 1;
  settings.limits.last_head_s = 60;
  RawClient held(port());
  held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(handler.seen.log.lock().wait_for(60, [](const Log& l) { return l.held == 1; }));  // it has the worker
  RawClient queued(port());
  queued.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  RawClient half(port());
  half.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(handler.seen.log.lock().wait_for(60, [](const Log& l) { return l.heads.size() == 3; }));
  RawClient late(port());
  server->drain();
  server->finish();
  for (RawClient* client : {&held, &queued, &half}) {
    Answer answer = client->answer();
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.headers["connection"], "close");
    EXPECT_TRUE(client->ends());
  }
  late.send("GET /quick HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(late.answer().status, 200);
  handler.seen.log.lock()->may_end = true;
  handler.seen.log.notify_all();
}

TEST_F(HttpServerTest, FinishingWaitsForNoHeadForLong) {
  settings.limits.last_head_s = 0.05;
  int status = 0;
  while (status == 0) {  // where the server has not read the bytes in that time, it closes without a word
    server.reset();
    RawClient half(port());
    half.send("GET / HT");
    RawClient silent(port());
    server->drain();
    server->finish();
    EXPECT_TRUE(silent.ends());
    status = half.answer().status;
  }
  EXPECT_EQ(status, 503);
}

TEST_F(HttpServerTest, BodiesOfClientsThatHaveLeftAreNotLookedAt) {
  settings.workers = 1;
  settings.threads = 1;
  RawClient held(port());
  held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
  const auto wait_for_heads = [&](size_t count) {
    auto log = handler.seen.log.lock();
    EXPECT_TRUE(log.wait_for(60, [&](const Log& l) { return l.held == 1 && l.heads.size() >= count; }));
  };
  wait_for_heads(1);
  {
    RawClient leaves(port());
    leaves.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nleft");
    wait_for_heads(2);
  }
  RawClient stays(port());
  stays.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nstayed");
  wait_for_heads(3);
  // The one thread for connections has seen who left before what came later.
  EXPECT_EQ(ask("GET /quick HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
  handler.seen.log.lock()->may_end = true;
  handler.seen.log.notify_all();
  EXPECT_EQ(stays.answer().status, 200);
  handler.seen.wait_for_ends(4);
  const std::vector<std::string> bodies = handler.seen.log.lock()->bodies;
  EXPECT_EQ(std::ranges::count(bodies, "stayed"), 1);
  EXPECT_EQ(std::ranges::count(bodies, "left"), 0);
}

// One is looked at and two wait: of six, three are refused whatever the order, and the others answered in the end.
TEST_F(HttpServerTest, BodiesWaitForWorkersUpToABound) {
  settings.workers = 1;
  settings.limits.waiting_bodies = 2;
  std::vector<RawClient> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back(port());
    clients.back().send("POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    auto log = handler.seen.log.lock();
    EXPECT_TRUE(log.wait_for(60, [](const Log& l) { return l.held == 1; }));
  }
  int refused = 0;
  while (refused < 3) {
    std::vector<pollfd> there;
    for (const RawClient& client : clients) there.push_back({client.descriptor(), POLLIN, 0});
    ASSERT_GT(::poll(there.data(), there.size(), 60000), 0);
    const auto answered = std::find_if(there.begin(), there.end(), [](const pollfd& p) { return p.revents != 0; });
    const auto client = clients.begin() + (answered - there.begin());
    EXPECT_EQ(client->answer().status, 429);
    clients.erase(client);
    ++refused;
  }
  EXPECT_EQ(ask("GET /quick HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
  handler.seen.log.lock()->may_end = true;
  handler.seen.log.notify_all();
  for (RawClient& client : clients) EXPECT_EQ(client.answer().status, 200);
}

TEST_F(HttpServerTest, EndsWithWorkUnderWay) {
  RawClient streaming(port());
  streaming.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(streaming.read_to("xxxx"), "");
  RawClient waiting(port());
  waiting.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  server.reset();
  const auto log = handler.seen.log.lock();
  EXPECT_EQ(log->whole.size(), log->heads.size());
}

TEST_F(HttpServerTest, WithoutItsThreadsIsAnError) {
  if (sanitized) return;  // sanitizers take more memory than a limit may leave
  settings.workers = 1;   // which has the one thread
  EXPECT_EXIT(without_threads([&] { const HttpServer made(settings, handler); }), testing::ExitedWithCode(7),
              "refuses a thread for");
}

TEST_F(HttpServerTest, SettingsThatCannotBe) {
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
  EXPECT_EQ(client_of("10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(client_of("::ffff:10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(client_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(client_of("2001:db8:1:2:ffff::1"), client_of("2001:db8:1:2::9"));
  EXPECT_NE(client_of("2001:db8:1:3::1"), client_of("2001:db8:1:2::1"));
  EXPECT_TRUE(is_loopback("127.1.2.3"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
  EXPECT_FALSE(is_loopback("192.168.0.1"));
}

}  // namespace
}  // namespace ingot::server
