// How a server shuts down, and what its clients receive.
#include <gtest/gtest.h>

#include "tests/server/echo_server.h"

namespace ingot::server {
namespace {

TEST_F(HttpServerTest, DrainingClosesIdleConnectionsAndAnswersNewOnes) {
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

// A connected client that sends its request after the drain has started is answered, like one that sent it before.
TEST_F(HttpServerTest, DrainingAnswersConnectedClients) {
  RawClient early(port());
  RawClient other(port());
  other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(other.answer().status, 200);  // the earlier connection has been accepted, too
  server->drain();
  early.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(early.answer().status, 200);
  EXPECT_TRUE(early.ends());
}

TEST_F(HttpServerTest, FinishingCompletesRequestsInProgress) {
  settings.workers = 1;
  settings.limits.last_head_s = 60;
  RawClient held(port());
  held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(
      handler.seen.log.lock().wait_for(60, [](const EchoLog& l) { return l.held == 1; }));  // it occupies the worker
  RawClient queued(port());
  queued.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  RawClient half(port());
  half.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(handler.seen.log.lock().wait_for(60, [](const EchoLog& l) { return l.heads.size() == 3; }));
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

TEST_F(HttpServerTest, FinishingWaitsOnlyBrieflyForHeads) {
  settings.limits.last_head_s = 0.05;
  int status = 0;
  while (status == 0) {  // when the bytes were not read in time, the connection closes without an answer
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

TEST_F(HttpServerTest, CanBeDestroyedWithWorkInProgress) {
  RawClient streaming(port());
  streaming.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(streaming.read_to("xxxx"), "");
  RawClient waiting(port());
  waiting.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  server.reset();
  const auto log = handler.seen.log.lock();
  EXPECT_EQ(log->whole.size(), log->heads.size());
}

}  // namespace
}  // namespace ingot::server
