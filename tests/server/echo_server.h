// A server that answers with the request's body and records requests and their ends.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "server/http_server.h"
#include "tests/server/raw_client.h"

namespace ingot::server {

struct EchoLog {
  std::vector<RequestHead> heads;
  std::vector<bool> whole;          // whether each ended answer was complete
  std::vector<std::string> bodies;  // the bodies received
  int held = 0;                     // number of started answers to /held and received bodies of /late
  bool may_end = false;
};

// What the tests check and wait for.
struct Seen {
  Guarded<EchoLog> log;

  void wait_for_ends(size_t count) {
    auto held = log.lock();
    EXPECT_TRUE(held.wait_for(60, [&](const EchoLog& l) { return l.whole.size() >= count; }));
  }
};

// /refused refuses by its head; /stream streams endlessly; /held and the answer of /late wait until they may end;
// /quick needs no worker; the end of /throws throws. All other targets return the body.
class Echo : public Collective {
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
      held.wait([](const EchoLog& l) { return l.may_end; });
    }
    seen_.log.lock()->bodies.push_back(body);
    body_ = std::move(body);
    ready_ = true;
    wake();
  }
  ReplyPart poll() override {
    ReplyPart part;
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
      if (!started_) part.head->streamed = true;
      if (started_) part.head.reset();
      started_ = true;
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
  bool started_ = false;
};

class EchoHandler : public Handler {
 public:
  std::shared_ptr<Collective> open(RequestHead head) override { return std::make_shared<Echo>(seen, std::move(head)); }
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
  // Waits until bodies take that many bytes in the server; false after a minute.
  bool holds(size_t least, size_t most) const {
    for (int i = 0; i < 60000; ++i) {
      const size_t held = server->counts().body_bytes;
      if (held >= least && held <= most) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
};

}  // namespace ingot::server
