// Slow, idle and disconnecting clients, and limits on connections.
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "base/error.h"
#include "tests/server/echo_server.h"
#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

// Each time limit alone: the others exceed the client's patience.
struct SlowClients : HttpServerTest {
  SlowClients() {
    settings.limits.header_s = 1000;
    settings.limits.body_s = 1000;
    settings.limits.idle_s = 1000;
  }
  void expect_time_out(std::string_view bytes) {
    Answer answer;
    while (answer.status == 0) {  // the request's own bytes were too late, so there is no answer
      RawClient slow(port());
      slow.send(bytes);
      answer = slow.answer();
      EXPECT_TRUE(slow.ends());
    }
    EXPECT_EQ(answer.status, 408);
  }
};

TEST_F(SlowClients, TimeOutDuringTheHead) {
  settings.limits.header_s = 0.05;
  RawClient silent(port());
  EXPECT_TRUE(silent.ends());
  expect_time_out("GET / HTTP/1.1\r\nHost: a\r\nX: ");
}

TEST_F(SlowClients, TimeOutDuringTheBody) {
  settings.limits.body_s = 0.05;
  expect_time_out("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
}

TEST_F(SlowClients, TimeOutBetweenRequests) {
  settings.limits.idle_s = 0.05;
  RawClient idle(port());
  idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(idle.answer().status, 200);
  EXPECT_TRUE(idle.ends());
}

TEST_F(HttpServerTest, ClientsThatDoNotReadAreDisconnected) {
  settings.limits.write_s = 0.2;
  RawClient client(port());
  client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  handler.seen.wait_for_ends(1);
  EXPECT_FALSE(handler.seen.log.lock()->whole[0]);
}

TEST_F(HttpServerTest, DisconnectedClientsEndTheirExchange) {
  {
    RawClient client(port());
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_NE(client.read_to("xxxx"), "");
  }
  handler.seen.wait_for_ends(1);
  EXPECT_FALSE(handler.seen.log.lock()->whole[0]);
}

TEST_F(HttpServerTest, ConnectionsAreLimited) {
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

TEST_F(HttpServerTest, ConnectionsOfOneAddressAreLimited) {
  settings.limits.connections_per_address = 1;
  RawClient first(port());
  first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(first.answer().status, 200);
  RawClient second(port());
  EXPECT_EQ(second.answer().status, 503);
}

// A server with a limit of one connection: one client is served, and a refused one stays connected.
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

TEST_F(FullServerTest, RefusedClientsTakeNoPlace) {
  settings.limits.connections_per_address = 1;
  fill();
  first->close();
  while (server->counts().connections > 1) std::this_thread::yield();  // the refused connection is still read
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
}

TEST_F(FullServerTest, RefusedConnectionsAreLimitedToo) {
  settings.limits.refusals = 1;
  fill();
  EXPECT_TRUE(RawClient(port()).ends());  // without an answer
  EXPECT_EQ(server->counts().connections, 2);
  refused->close();
  while (server->counts().connections > 1) std::this_thread::yield();
  EXPECT_EQ(RawClient(port()).answer().status, 503);
}

TEST_F(HttpServerTest, AnExchangeWhoseEndThrowsReleasesItsPlace) {
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

}  // namespace
}  // namespace ingot::server
