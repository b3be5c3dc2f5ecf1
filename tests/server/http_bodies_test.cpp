// The common limit of all bodies, and the workers that process them.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/server/echo_server.h"

namespace ingot::server {
namespace {

// The limit counts bodies in processing, and the received bytes of those being read.
TEST_F(HttpServerTest, AllBodiesShareALimit) {
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
    EXPECT_TRUE(log.wait_for(60, [](const EchoLog& l) { return l.held == 1; }));
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

// A POST with 400 bytes in one chunk, followed by `rest`.
std::string in_chunks(const std::string& target, const std::string& rest) {
  return "POST " + target + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n190\r\n" +
         std::string(400, 'a') + "\r\n" + rest;
}

// Allocated memory counts, which exceeds the received bytes while a body grows.
TEST_F(HttpServerTest, ChunkedBodiesCountAsTheyGrow) {
  settings.limits.bodies_bytes = 600;
  settings.limits.uncounted_bytes = 0;
  EXPECT_EQ(ask(in_chunks("/", "0\r\n\r\n")).body.size(), 400U);
  EXPECT_EQ(ask(in_chunks("/", "1\r\na\r\n0\r\n\r\n")).status, 503);
}

TEST_F(HttpServerTest, SmallChunkedBodiesAlwaysPass) {
  settings.limits.bodies_bytes = 1;
  settings.limits.uncounted_bytes = 401;
  EXPECT_EQ(ask(in_chunks("/", "1\r\na\r\n0\r\n\r\n")).body.size(), 401U);
  EXPECT_EQ(ask(in_chunks("/", "2\r\naa\r\n0\r\n\r\n")).status, 503);
}

// The memory must be released before the client reads the answer.
TEST_F(HttpServerTest, ARefusedBodyIsReleasedImmediately) {
  settings.limits.bodies_bytes = 500;
  settings.limits.uncounted_bytes = 0;
  RawClient refused(port());
  refused.send(in_chunks("/late", ""));
  ASSERT_TRUE(holds(400, 500));
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'a')).status, 503);
  refused.send("no size\r\n");
  {
    auto log = handler.seen.log.lock();
    EXPECT_TRUE(log.wait_for(60, [](const EchoLog& l) { return l.held >= 1; }));
  }
  EXPECT_EQ(server->counts().body_bytes, 0U);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n" + std::string(500, 'a')).status, 200);
  handler.seen.log.lock()->may_end = true;
  refused.send("a");  // wakes the connection's handler
  EXPECT_EQ(refused.answer().status, 400);
}

TEST_F(HttpServerTest, QuickAnswersDoNotWaitForWorkers) {
  settings.workers = 1;
  RawClient held(port());
  held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
  {
    auto log = handler.seen.log.lock();
    EXPECT_TRUE(log.wait_for(60, [](const EchoLog& l) { return l.held == 1; }));
  }
  EXPECT_EQ(ask("GET /quick HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
  handler.seen.log.lock()->may_end = true;
  handler.seen.log.notify_all();
  EXPECT_EQ(held.answer().status, 200);
}

TEST_F(HttpServerTest, BodiesOfDisconnectedClientsAreNotProcessed) {
  settings.workers = 1;
  settings.threads = 1;
  RawClient held(port());
  held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
  const auto wait_for_heads = [&](size_t count) {
    auto log = handler.seen.log.lock();
    EXPECT_TRUE(log.wait_for(60, [&](const EchoLog& l) { return l.held == 1 && l.heads.size() >= count; }));
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
  // The only connection thread notices the disconnections before later requests.
  EXPECT_EQ(ask("GET /quick HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
  handler.seen.log.lock()->may_end = true;
  handler.seen.log.notify_all();
  EXPECT_EQ(stays.answer().status, 200);
  handler.seen.wait_for_ends(4);
  const std::vector<std::string> bodies = handler.seen.log.lock()->bodies;
  EXPECT_EQ(std::ranges::count(bodies, "stayed"), 1);
  EXPECT_EQ(std::ranges::count(bodies, "left"), 0);
}

// One body is processed and two wait. Of six, three are refused in any order, and the others are answered.
TEST_F(HttpServerTest, BodiesThatWaitForWorkersAreLimited) {
  settings.workers = 1;
  settings.limits.waiting_bodies = 2;
  std::vector<RawClient> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back(port());
    clients.back().send("POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    auto log = handler.seen.log.lock();
    EXPECT_TRUE(log.wait_for(60, [](const EchoLog& l) { return l.held == 1; }));
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

}  // namespace
}  // namespace ingot::server
