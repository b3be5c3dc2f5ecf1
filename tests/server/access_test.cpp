// Access control over a real socket: keys, their limits, and host names.
#include <gtest/gtest.h>

#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

TEST(Api, EveryRouteButTheProbesNeedsAKey) {
  TinySettings settings;
  settings.api.keys = parse_keys(std::string(secret) + " alice\nanother-key-of-mine bob infer\n", "keys");
  TinyServer server(std::move(settings));
  for (const char* target : {"/health", "/ready", "/"}) EXPECT_EQ(server.ask("GET", target).status, 200) << target;
  for (const char* target : {"/metrics", "/v1/models", "/v1/models/org/tiny", "/v1/adapters", "/nothing", "/v1/",
                             "/v1/chat/completions", "//health", "/health/", "/%68ealth", "/v1/files"}) {
    for (const char* method : {"GET", "DELETE", "OPTIONS"}) {
      expect_error(server.ask(method, target), 401, "invalid_api_key");
      expect_error(server.ask(method, target, "", bearer("correct-horse-batterz")), 401, "invalid_api_key");
    }
  }
  for (const char* target : {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/tokenize",
                             "/v1/detokenize", "/v1/adapters"}) {
    expect_error(server.ask("POST", target, "{}"), 401, "invalid_api_key");
  }
  EXPECT_EQ(server.ask("GET", "/v1/models", "", bearer(secret)).status, 200);
  EXPECT_EQ(server.ask("GET", "/metrics", "", bearer(secret)).status, 200);
  for (const char* scheme : {"bearer", "BEARER", "bEaReR"}) {
    EXPECT_EQ(
        server.ask("GET", "/v1/models", "", std::string("Authorization: ") + scheme + " " + secret + "\r\n").status,
        200);
  }
  for (const char* scheme : {"Basic ", "Bearer", "Bearerx ", ""}) {
    expect_error(server.ask("GET", "/v1/models", "", std::string("Authorization: ") + scheme + secret + "\r\n"), 401,
                 "invalid_api_key");
  }
  EXPECT_EQ(server.ask("POST", "/v1/chat/completions", plain_chat, bearer(secret)).status, 200);
  expect_error(server.ask("POST", "/v1/adapters", R"({"name": "poet"})", bearer("another-key-of-mine")), 403,
               "insufficient_permissions");
  Json urgent = Json::parse(plain_chat);
  urgent["priority"] = 1;
  EXPECT_EQ(server.ask("POST", "/v1/chat/completions", urgent.dump(), bearer(secret)).status, 200);
  expect_error(server.ask("POST", "/v1/chat/completions", urgent.dump(), bearer("another-key-of-mine")), 403,
               "insufficient_permissions");
  urgent["priority"] = -1;
  EXPECT_EQ(server.ask("POST", "/v1/chat/completions", urgent.dump(), bearer("another-key-of-mine")).status, 200);
  expect_error(server.ask("DELETE", "/v1/models/poet", "", bearer("another-key-of-mine")), 403,
               "insufficient_permissions");
  EXPECT_EQ(server.ask("POST", "/v1/adapters", R"({"name": "poet"})", bearer(secret)).status, 200);
  for (const Json& line : server.log_lines(10)) {
    EXPECT_EQ(line.dump().find("horse"), std::string::npos);
  }
}

TEST(Api, KeysDoNotShareThePrefixCache) {
  TinySettings settings;
  settings.api.keys = parse_keys(std::string(secret) + " alice\nanother-key-of-mine bob\n", "keys");
  settings.engine.prefix_cache = true;
  TinyServer server(std::move(settings));
  const std::string body = Json{{"model", "org/tiny"}, {"prompt", std::string(100, 'a')}, {"max_tokens", 1}}.dump();
  const auto cached = [&](const char* key) {
    const Answer answer = server.ask("POST", "/v1/completions", body, bearer(key));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached(secret), 0);
  EXPECT_GT(cached(secret), 0);
  EXPECT_EQ(cached("another-key-of-mine"), 0);
  EXPECT_GT(cached("another-key-of-mine"), 0);
}

TEST(Api, KeysHaveRateLimits) {
  TinySettings settings;
  settings.api.keys = parse_keys(std::string(secret) + " alice requests=2\n", "keys");
  TinyServer server(std::move(settings));
  const Answer first = server.ask("GET", "/v1/models", "", bearer(secret));
  EXPECT_EQ(first.headers.at("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first.headers.at("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(server.ask("GET", "/v1/models", "", bearer(secret)).status, 200);
  const Answer refused = server.ask("GET", "/v1/models", "", bearer(secret));
  expect_error(refused, 429, "rate_limit_exceeded");
  EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
}

TEST(Api, ForeignHostNamesAreRefusedWithoutKeys) {
  TinyServer server;
  const auto status = [&](const std::string& host) {
    RawClient client(server.http->port());
    client.send("GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client.answer().status;
  };
  EXPECT_EQ(status("localhost:8000"), 200);
  EXPECT_EQ(status("LocalHost"), 200);
  EXPECT_EQ(status("LOCALHOST:8000"), 200);
  EXPECT_EQ(status("127.0.0.1"), 200);
  EXPECT_EQ(status("[::1]:8000"), 200);
  EXPECT_EQ(status("evil.example"), 403);
  EXPECT_EQ(status("127.0.0.1.evil.example"), 403);
}

TEST(Api, KeysAreReplacedWhileRunning) {
  TinySettings settings;
  settings.api.keys = parse_keys("correct-horse-battery alice\n", "keys");
  TinyServer server(std::move(settings));
  EXPECT_EQ(server.ask("GET", "/v1/models", "", bearer(secret)).status, 200);
  EXPECT_EQ(server.ask("GET", "/v1/models", "", bearer("another-key-of-mine")).status, 401);
  server.api->set_keys(parse_keys("another-key-of-mine bob\n", "keys"));
  EXPECT_EQ(server.ask("GET", "/v1/models", "", bearer(secret)).status, 401);
  EXPECT_EQ(server.ask("GET", "/v1/models", "", bearer("another-key-of-mine")).status, 200);
  EXPECT_THROW(server.api->set_keys({}), Error);
  EXPECT_EQ(server.ask("GET", "/v1/models", "", bearer("another-key-of-mine")).status, 200);
}

}  // namespace
}  // namespace ingot::server
