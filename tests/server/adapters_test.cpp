// /v1/adapters, over a real socket.
#include <gtest/gtest.h>

#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

TEST(Api, AdaptersAreAddedAndRemoved) {
  TinyServer server;
  EXPECT_TRUE(server.get("/v1/adapters")["data"].empty());
  EXPECT_EQ(server.post("/v1/adapters", {{"name", "poet"}})["id"], "poet");
  const Json list = server.get("/v1/adapters");
  ASSERT_EQ(list["data"].size(), 1U);
  EXPECT_EQ(list["data"][0]["rank"], 4);
  const Answer gone = server.ask("DELETE", "/v1/adapters/poet");
  EXPECT_EQ(gone.status, 200);
  EXPECT_EQ(Json::parse(gone.body)["deleted"], true);
  expect_error(server.ask("DELETE", "/v1/adapters/poet"), 404, "model_not_found");
  const Json missing = server.post("/v1/adapters", {{"name", "missing"}}, 404);
  EXPECT_EQ(missing["error"]["message"].get<std::string>().find("secret"), std::string::npos);
  for (const char* name : {"broken", "huge", "strange"}) {
    const Answer answer = server.ask("POST", "/v1/adapters", Json{{"name", name}}.dump());
    expect_error(answer, 400, std::string(name) == "strange" ? "unsupported_value" : "invalid_value");
    EXPECT_EQ(answer.body.find("secret"), std::string::npos) << answer.body;
    EXPECT_NE(answer.body.find(name), std::string::npos) << answer.body;
    EXPECT_EQ(Json::parse(answer.body)["error"]["type"], "invalid_request_error");
    EXPECT_EQ(Json::parse(answer.body)["error"]["param"], "name");
    EXPECT_FALSE(answer.headers.contains("retry-after"));
  }
  for (const char* name : {"../../etc", "..", "/etc/passwd", "a/../b", "org/tiny", "x\\y", "caf\xc3\xa9"}) {
    EXPECT_EQ(server.post("/v1/adapters", {{"name", name}}, 400)["error"]["param"], "name") << name;
  }
  for (const char* name : {"..%2F..%2Fetc", "../../etc/passwd", "%2e%2e", "..%5c..", "%252e%252e"}) {
    EXPECT_EQ(server.ask("DELETE", std::string("/v1/adapters/") + name).status, 404) << name;
  }
}

TEST(Api, UnreadableAdaptersGetTheStatusOfTheirFault) {
  TinyServer server;
  for (const auto& [name, status, code] :
       {std::tuple("busy", 503, "unavailable"), std::tuple("gone", 404, "model_not_found"),
        std::tuple("rotten", 400, "invalid_value")}) {
    server.post("/v1/adapters", {{"name", name}});
    for (const char* route : {"/v1/chat/completions", "/v1/completions", "/v1/embeddings"}) {
      Json body = {{"model", name}};
      if (std::string(route) == "/v1/embeddings") body["input"] = "x";
      if (std::string(route) == "/v1/completions") body["prompt"] = "x";
      if (std::string(route) == "/v1/chat/completions") body["messages"] = {{{"role", "user"}, {"content", "x"}}};
      const Answer answer = server.ask("POST", route, body.dump());
      expect_error(answer, status, code);
      EXPECT_EQ(answer.body.find("secret"), std::string::npos) << answer.body;
      EXPECT_EQ(Json::parse(answer.body)["error"]["param"], "model");
      EXPECT_EQ(answer.headers.contains("retry-after"), status == 503);
    }
  }
  // The log gives the reason. Its order may differ from that of the answers.
  const std::vector<Json> lines = server.log_lines(12);
  EXPECT_EQ(
      std::count_if(lines.begin(), lines.end(),
                    [](const Json& line) { return line.value("failure", "").find("is cut") != std::string::npos; }),
      3);
}

TEST(Api, AdaptersBeingWrittenAreTemporaryErrors) {
  TinyServer server;
  const Answer answer = server.ask("POST", "/v1/adapters", R"({"name": "changing"})");
  expect_error(answer, 503, "unavailable");
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
  EXPECT_EQ(Json::parse(answer.body)["error"]["message"],
            "The adapter 'changing' is temporarily unavailable; try again.");
}

// A 500 with a reason: it is not the server's fault, and other requests are unlikely to fail.
TEST(Api, NonFiniteResultsAreReported) {
  TinyServer server;
  server.post("/v1/adapters", {{"name", "boundless"}});
  const Json prompt = {{"model", "boundless"}, {"prompt", "x"}, {"max_tokens", 4}};
  const Json error = server.post("/v1/completions", prompt, 500)["error"];
  EXPECT_EQ(error["code"], "not_finite");
  EXPECT_NE(error["message"].get<std::string>().find("not finite"), std::string::npos) << error;
  const Json states = {{"model", "boundless"}, {"input", "x"}};
  EXPECT_EQ(server.post("/v1/embeddings", states, 500)["error"]["code"], "not_finite");
  server.post("/v1/completions", {{"model", server.served.id}, {"prompt", "x"}, {"max_tokens", 4}});
}

}  // namespace
}  // namespace ingot::server
