// Which requests a server accepts and in which order they run, over a real socket: queue, priorities, keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "tests/base/scratch.h"
#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

TEST(Admission, MoreOutputsThanTheQueueHoldsIsAnError) {
  TinySettings settings;
  settings.queue = 3;
  TinyServer server(std::move(settings));
  Json body = Json::parse(plain_chat);
  body["n"] = 4;
  const Answer answer = server.ask("POST", "/v1/chat/completions", body.dump());
  expect_error(answer, 400, "invalid_value");
  EXPECT_FALSE(answer.headers.contains("retry-after")) << "a retry would not succeed";
  body["n"] = 3;
  server.post("/v1/chat/completions", body);
}

std::string chat_request(const Json& body) {
  const std::string text = body.dump();
  return "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(text.size()) + "\r\n\r\n" + text;
}

// Requests 128 outputs, the first of which blocks the engine after its first token, and waits until it does.
std::unique_ptr<RawClient> begin_held(TinyServer& server) {
  Json body = Json::parse(plain_chat);
  body["n"] = 128;
  body["stream"] = true;
  body["max_tokens"] = 200;
  body["response_format"] = {{"type", "json_schema"},
                             {"json_schema", {{"name", "n"}, {"schema", {{"const", "wait"}}}}}};
  auto client = std::make_unique<RawClient>(server.http->port());
  client->send(chat_request(body));
  EXPECT_TRUE(server.masks.gate.lock().wait_for(60, [](const Gate& gate) { return gate.reached; }));
  return client;
}

void open_gate(TinyServer& server) {
  server.masks.gate.lock()->open = true;
  server.masks.gate.notify_all();
}

TEST(Admission, AFullQueueIsReported) {
  TinySettings settings;
  settings.queue = 128;
  settings.engine.sequences = 1;
  TinyServer server(std::move(settings));
  const std::unique_ptr<RawClient> others = begin_held(server);  // 127 outputs wait
  Json body = Json::parse(plain_chat);
  body["n"] = 2;
  const Answer answer = server.ask("POST", "/v1/chat/completions", body.dump());
  expect_error(answer, 429, "rate_limit_exceeded");
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
  open_gate(server);
  int status = 429;
  while (status == 429) status = server.ask("POST", "/v1/chat/completions", body.dump()).status;
  EXPECT_EQ(status, 200);
}

TEST(Admission, DisconnectedClientsEndTheirGeneration) {
  TinyServer server;
  begin_held(server)->close();
  const Json line = server.log_lines(1).front();
  EXPECT_EQ(line["status"], 499);
  EXPECT_LE(line.value("completion_tokens", 0), 8);
  open_gate(server);
  // The engine has free places again: another request is answered, and none is left.
  const Json reply = server.post("/v1/chat/completions", Json::parse(plain_chat));
  while (!server.service->idle()) std::this_thread::yield();
  EXPECT_LE(server.service->counts().output_tokens, 16 + reply["usage"]["completion_tokens"].get<int64_t>());
}

TEST(Admission, HigherPrioritiesRunFirst) {
  TinySettings settings;
  settings.engine.sequences = 1;
  TinyServer server(std::move(settings));
  server.masks.text = std::string(200, 'a');
  const std::unique_ptr<RawClient> others = begin_held(server);
  Json body = Json::parse(plain_chat);
  body["priority"] = 1;
  RawClient urgent(server.http->port());
  urgent.send(chat_request(body));
  while (server.service->counts().queued < 128) std::this_thread::yield();
  open_gate(server);
  const Json reply = Json::parse(urgent.answer().body);
  EXPECT_EQ(server.log_lines(1).front().value("completion_tokens", 0), reply["usage"]["completion_tokens"]);
}

TEST(Admission, ManyRequestsRunAtOnce) {
  TinyServer server;
  const std::string expected =
      server.post("/v1/chat/completions",
                  {{"model", "org/tiny"},
                   {"temperature", 0},
                   {"max_tokens", 20},
                   {"messages", {{{"role", "user"}, {"content", "x"}}}}})["choices"][0]["message"]["content"];
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&] {
      for (int i = 0; i < 4; ++i) {
        const std::vector<Json> events =
            server.stream("/v1/chat/completions", {{"model", "org/tiny"},
                                                   {"temperature", 0},
                                                   {"max_tokens", 20},
                                                   {"stream", true},
                                                   {"messages", {{{"role", "user"}, {"content", "x"}}}}});
        std::string text;
        for (const Json& event : events) text += event["choices"][0]["delta"].value("content", "");
        right += text == expected ? 1 : 0;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 32);
}

// A client that holds the whole body budget blocks large requests only.
TEST(Admission, SmallRequestsPassWhenLargeOnesDoNot) {
  TinySettings settings;
  settings.http.limits.bodies_bytes = 1000;
  TinyServer server(std::move(settings));
  const Json body = {{"model", "org/tiny"}, {"prompt", "a"}, {"max_tokens", 2}};
  const size_t held = small_body + 1000;
  const std::string large = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
                            ("Content-Length: " + std::to_string(held + 1)) + "\r\n\r\n" + std::string(held, ' ');
  RawClient slow(server.http->port());
  slow.send(large);
  for (int i = 0; i < 60000 && server.http->counts().body_bytes < 1000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_NE(server.ask("GET", "/metrics").body.find("\ningot_body_bytes 1000\n"), std::string::npos);
  const Answer refused = server.ask("POST", "/v1/completions", body.dump() + std::string(small_body, ' '));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  const Json error = Json::parse(refused.body)["error"];
  EXPECT_EQ(error["message"], "The server has reached its limit for bytes of request bodies");
  EXPECT_EQ(error["type"], "server_error");
  EXPECT_EQ(error["code"], "unavailable");
  server.post("/v1/completions", body);
  std::string full = body.dump();
  full += std::string(small_body - full.size(), ' ');
  EXPECT_EQ(server.ask("POST", "/v1/completions", full).status, 200);
}

// A key owns its requests: one key's requests leave a thread to others.
TEST(Admission, OneKeyMayNotUseAllThreads) {
  constexpr const char* other = "another-key-of-mine";
  TinySettings settings;
  settings.api.keys = parse_keys(std::string(secret) + " alice\n" + other + " bob\n", "keys");
  settings.http.workers = 3;
  TinyServer server(std::move(settings));
  struct Held {
    int started = 0;
    bool open = false;
  };
  Guarded<Held> held;
  server.masks.before = [&] {
    auto now = held.lock();
    ++now->started;
    held.notify_all();
    EXPECT_TRUE(now.wait_for(60, [](const Held& h) { return h.open; }));
  };
  const std::string guided = Json{{"model", "org/tiny"}, {"prompt", "a"}, {"guided_json", Json::object()}}.dump();
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] { EXPECT_EQ(server.ask("POST", "/v1/completions", guided, bearer(secret)).status, 200); });
  }
  EXPECT_TRUE(held.lock().wait_for(60, [](const Held& h) { return h.started == 2; }));
  EXPECT_EQ(server.ask("POST", "/v1/tokenize", R"({"prompt":"a"})", bearer(other)).status, 200);
  EXPECT_EQ(held.lock()->started, 2);
  held.lock()->open = true;
  held.notify_all();
  for (std::thread& client : clients) client.join();
}

// Outputs are limited, not requests: with few requests a key could still ask for thousands of outputs.
TEST(Admission, OneKeyMayNotFillTheQueue) {
  constexpr const char* other = "another-key-of-mine";
  TinySettings settings;
  settings.api.keys = parse_keys(std::string(secret) + " alice\n" + other + " bob\n", "keys");
  settings.queue = 4;
  settings.share = 2;
  TinyServer server(std::move(settings));
  const auto ask = [&](const char* key, int outputs) {
    const Json body = {{"model", "org/tiny"}, {"prompt", "a"}, {"n", outputs}, {"max_tokens", 2}};
    return server.ask("POST", "/v1/completions", body.dump(), bearer(key));
  };
  const Answer refused = ask(secret, 3);
  EXPECT_EQ(refused.status, 400) << "a retry would not succeed";
  EXPECT_FALSE(refused.headers.contains("retry-after"));
  EXPECT_EQ(Json::parse(refused.body)["error"]["message"], "3 outputs in one request; at most 2 can be queued");
  EXPECT_EQ(ask(other, 2).status, 200);
  EXPECT_EQ(ask(secret, 2).status, 200);
}

}  // namespace
}  // namespace ingot::server
