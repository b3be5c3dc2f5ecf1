// Pages of other origins have no access unless their origin is configured.
#include "server/cors.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

constexpr const char* app = "https://app.example";

TinySettings with_origins(std::vector<std::string> origins) {
  TinySettings settings;
  settings.api.keys = parse_keys(std::string(secret) + " alice\n", "keys");
  settings.api.origins = std::move(origins);
  return settings;
}

std::string preflight_from(const std::string& origin) {
  // An answer without a body has no Content-Length: it ends with the connection.
  return "Connection: close\r\nOrigin: " + origin +
         "\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: "
         "authorization,content-type,x-stainless-os\r\n";
}

void expect_no_cors(const Answer& answer) {
  for (const auto& [name, value] : answer.headers) EXPECT_FALSE(name.starts_with("access-control-")) << name;
}

TEST(Cors, NothingIsAllowedByDefault) {
  TinyServer server;
  const Answer preflight = server.ask("OPTIONS", "/v1/chat/completions", "", preflight_from(app));
  EXPECT_EQ(preflight.status, 405);
  expect_no_cors(preflight);
  const Answer models = server.ask("GET", "/v1/models", "", std::string("Origin: ") + app + "\r\n");
  EXPECT_EQ(models.status, 200);
  expect_no_cors(models);
  EXPECT_FALSE(models.headers.contains("vary"));
}

TEST(Cors, PreflightsOfANamedOriginNeedNoKey) {
  TinyServer server(with_origins({app, "http://localhost:3000"}));
  for (const char* origin : {app, "http://localhost:3000"}) {
    const Answer answer = server.ask("OPTIONS", "/v1/chat/completions", "", preflight_from(origin));
    EXPECT_EQ(answer.status, 204);
    EXPECT_EQ(answer.headers.at("access-control-allow-origin"), origin);
    EXPECT_EQ(answer.headers.at("access-control-allow-methods"), "POST");
    EXPECT_EQ(answer.headers.at("access-control-allow-headers"), "authorization,content-type,x-stainless-os");
    EXPECT_EQ(answer.headers.at("vary"), "Origin");
    EXPECT_FALSE(answer.headers.contains("access-control-allow-credentials"));
    EXPECT_FALSE(answer.headers.contains("content-length"));
  }
  EXPECT_EQ(server.ask("OPTIONS", "/v1/models/x", "", preflight_from(app)).headers.at("access-control-allow-methods"),
            "GET, HEAD, DELETE");
  // Not a preflight, another origin, a route that does not exist: the answer is the same as without the option.
  EXPECT_EQ(server.ask("OPTIONS", "/v1/models", "", std::string("Origin: ") + app + "\r\n").status, 401);
  for (const char* other : {"https://evil.example", "https://app.example.evil", "http://app.example", "null",
                            "https://app.example:444", "HTTPS://APP.EXAMPLE"}) {
    const Answer answer = server.ask("OPTIONS", "/v1/chat/completions", "", preflight_from(other));
    EXPECT_EQ(answer.status, 401) << other;
    expect_no_cors(answer);
    EXPECT_EQ(answer.headers.at("vary"), "Origin");
  }
  EXPECT_EQ(server.ask("OPTIONS", "/nothing", "", preflight_from(app)).status, 401);
  // An invalid list of headers is not echoed.
  const Answer strange =
      server.ask("OPTIONS", "/v1/models", "",
                 std::string("Connection: close\r\nOrigin: ") + app +
                     "\r\nAccess-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: a\"<b>\r\n");
  EXPECT_EQ(strange.headers.at("access-control-allow-headers"), "Authorization, Content-Type");
}

TEST(Cors, AnswersAndErrorsMayBeRead) {
  TinyServer server(with_origins({app}));
  const std::string from = std::string("Origin: ") + app + "\r\n";
  const std::string key = bearer(secret);
  const std::string body = R"({"model": "org/tiny", "prompt": "a", "max_tokens": 2, "stream": true})";
  for (const Answer& answer :
       {server.ask("GET", "/v1/models", "", from + key), server.ask("GET", "/v1/models", "", from),
        server.ask("GET", "/health", "", from), server.ask("POST", "/v1/completions", body, from + key),
        server.ask("POST", "/v1/completions", "{", from + key), server.ask("PUT", "/v1/models", "", from + key)}) {
    EXPECT_EQ(answer.headers.at("access-control-allow-origin"), app) << answer.status;
    EXPECT_EQ(answer.headers.at("vary"), "Origin") << answer.status;
    EXPECT_NE(answer.headers.at("access-control-expose-headers").find("Retry-After"), std::string::npos);
    EXPECT_FALSE(answer.headers.contains("access-control-allow-credentials"));
  }
  expect_no_cors(server.ask("GET", "/v1/models", "", "Origin: https://evil.example\r\n" + key));
}

TEST(Cors, AllOriginsMayBeAllowed) {
  TinyServer server(with_origins({"*"}));
  const Answer answer = server.ask("OPTIONS", "/v1/models", "", preflight_from("https://any.example"));
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "*");
  EXPECT_FALSE(answer.headers.contains("access-control-allow-credentials"));
}

TEST(Cors, ParsesOrigins) {
  for (const char* right : {"*", "https://app.example", "http://localhost:3000", "http://127.0.0.1",
                            "http://[::1]:8080", "chrome-extension://abcdef"}) {
    EXPECT_NO_THROW(check_origin(right)) << right;
  }
  for (const char* wrong : {"", "app.example", "https://", "https://app.example/", "https://app.example/path",
                            "https://App.example", "https://app.example:", "https://app.example:x", "null",
                            "https://a b", "https://a\r\nX: y", "https://[::1", "https://[]", "*.example"}) {
    EXPECT_THROW(check_origin(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace ingot::server
