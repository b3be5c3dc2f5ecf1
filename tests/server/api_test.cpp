// Routes, errors, limits, the access log and shutdown, over a real socket.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "tests/base/scratch.h"
#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

TEST(Api, ListsModels) {
  TinyServer server;
  server.post("/v1/adapters", {{"name", "poet"}});
  const Json list = server.get("/v1/models");
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2U);
  EXPECT_EQ(list["data"][0], (Json{{"id", "org/tiny"}, {"object", "model"}, {"created", 5}, {"owned_by", "ingot"}}));
  EXPECT_EQ(server.get("/v1/models/org/tiny"), list["data"][0]);
  EXPECT_EQ(server.get("/v1/models/org%2Ftiny"), list["data"][0]);
  EXPECT_EQ(server.get("/v1/models/poet")["id"], "poet");
  expect_error(server.ask("GET", "/v1/models/other"), 404, "model_not_found");
  expect_error(server.ask("GET", "/v1/models/%zz"), 400, "invalid_url");
  expect_error(server.ask("GET", "/v1/models/%00"), 400, "invalid_url");
  expect_error(server.ask("DELETE", "/v1/models/org/tiny"), 404, "model_not_found");
}

TEST(Api, TokenizesAndDetokenizes) {
  TinyServer server;
  const Json reply = server.post("/v1/tokenize", {{"prompt", "ab c"}});
  EXPECT_EQ(reply["tokens"], Json(server.tokenizer->encode("ab c")));
  EXPECT_EQ(reply["count"], 4);
  EXPECT_EQ(reply["max_model_len"], 256);
  EXPECT_EQ(server.post("/v1/detokenize", {{"tokens", reply["tokens"]}})["prompt"], "ab c");
  const Json chat = server.post("/v1/tokenize", {{"messages", {{{"role", "user"}, {"content", "hi"}}}}});
  EXPECT_EQ(chat["tokens"], Json(server.chat_prompt("hi")));
  EXPECT_EQ(server.post("/v1/detokenize", {{"tokens", {131}}}, 400)["error"]["param"], "tokens");
  EXPECT_EQ(server.post("/v1/tokenize", {{"prompt", "a"}, {"model", "other"}}, 404)["error"]["param"], "model");
}

TEST(Api, InvalidRequestsAreNamed) {
  TinyServer server;
  expect_error(server.ask("GET", "/nothing"), 404, "unknown_url");
  expect_error(server.ask("GET", "/v1/chat/completions"), 405, "method_not_allowed");
  EXPECT_EQ(server.ask("GET", "/v1/chat/completions").headers["allow"], "POST");
  expect_error(server.ask("PUT", "/v1/models"), 405, "method_not_allowed");
  expect_error(server.ask("POST", "/v1/chat/completions", "", "Content-Length: 0\r\n"), 415, "unsupported_media_type");
  RawClient form(server.http->port());
  form.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  expect_error(form.answer(), 415, "unsupported_media_type");
  expect_error(server.ask("POST", "/v1/chat/completions", std::string(100000, '[')), 400, "invalid_json");
  expect_error(server.ask("POST", "/v1/chat/completions",
                          R"({"model": "other", "messages": [{"role": "user", "content": "x"}]})"),
               404, "model_not_found");
  // Exceptions of the template and the server's limits are errors of the request.
  expect_error(server.ask("POST", "/v1/chat/completions", R"({"model": "org/tiny", "messages": []})"), 400,
               "invalid_value");
}

TEST(Api, BodySizeIsLimitedByRoute) {
  TinySettings settings;
  settings.api.body_bytes = 100000;
  TinyServer server(std::move(settings));
  expect_error(server.ask("POST", "/v1/completions", std::string(100001, ' ')), 413, "request_too_large");
  expect_error(server.ask("POST", "/v1/adapters", std::string(70000, ' ')), 413, "request_too_large");
  expect_error(server.ask("POST", "/v1/completions", std::string(100000, ' ')), 400, "invalid_json");
}

TEST(Api, DeadlinesEndAnswers) {
  TinyServer server;
  Json body = Json::parse(plain_chat);
  body["n"] = 128;
  body["max_tokens"] = 200;
  body["logit_bias"] = {{"2", -100}};
  body["deadline_ms"] = 1;
  const Json reply = server.post("/v1/chat/completions", body);
  EXPECT_LT(reply["usage"]["completion_tokens"], 128 * 200);
  for (const Json& choice : reply["choices"]) EXPECT_EQ(choice["finish_reason"], "length");
}

// The first mask takes longer than the request's deadline: neither its first nor its second output starts.
TEST(Api, ADeadlineAppliesToTheWholeRequest) {
  TinyServer server;
  bool first = true;
  server.masks.before = [&first] {
    if (std::exchange(first, false)) std::this_thread::sleep_for(std::chrono::milliseconds(600));
  };
  Json body = Json::parse(plain_chat);
  body["n"] = 2;
  body["deadline_ms"] = 500;
  body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "n"}}}};
  const Json reply = server.post("/v1/chat/completions", body);
  EXPECT_EQ(reply["usage"]["completion_tokens"], 0);
  for (const Json& choice : reply["choices"]) EXPECT_EQ(choice["finish_reason"], "length");
}

TEST(Api, TheLogContainsNoPrompt) {
  TinyServer server;
  Json body = Json::parse(plain_chat);
  body["messages"][0]["content"] = "my-private-words";
  server.post("/v1/chat/completions?token=secret-in-the-query", body);
  server.log_lines(1);  // an answer is logged after its end, when the next may have started
  server.ask("POST", "/v1/chat/completions", R"({"model": "my-private-words)");
  const std::vector<Json> lines = server.log_lines(2);
  EXPECT_EQ(lines[0]["method"], "POST");
  EXPECT_EQ(lines[0]["path"], "/v1/chat/completions");
  EXPECT_EQ(lines[0]["status"], 200);
  EXPECT_EQ(lines[0]["model"], "org/tiny");
  EXPECT_TRUE(lines[0]["id"].get<std::string>().starts_with("req_"));
  for (const Json& line : lines) {
    EXPECT_EQ(line.dump().find("private"), std::string::npos) << line;
    EXPECT_EQ(line.dump().find("secret"), std::string::npos) << line;
  }
}

TEST(Api, MetricsHaveThePrometheusFormat) {
  TinyServer server;
  const Json reply = server.post("/v1/chat/completions", Json::parse(plain_chat));
  server.log_lines(1);
  const Answer answer = server.ask("GET", "/metrics");
  EXPECT_TRUE(answer.headers.at("content-type").starts_with("text/plain"));
  EXPECT_NE(answer.body.find("ingot_requests_total{route=\"chat\",status=\"200\"} 1\n"), std::string::npos)
      << answer.body;
  EXPECT_NE(answer.body.find("ingot_completion_tokens_total " +
                             std::to_string(reply["usage"]["completion_tokens"].get<int>()) + "\n"),
            std::string::npos);
  EXPECT_NE(answer.body.find("ingot_first_token_seconds_count 1\n"), std::string::npos);
  EXPECT_NE(answer.body.find("\ningot_body_bytes 0\n"), std::string::npos);
  // Every line is a comment, or a name and a number.
  std::istringstream lines(answer.body);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# ")) continue;
    const size_t space = line.rfind(' ');
    ASSERT_NE(space, std::string::npos) << line;
    EXPECT_NO_THROW(std::stod(line.substr(space + 1))) << line;
  }
}

TEST(Api, DrainingRefusesNewRequests) {
  TinyServer server;
  EXPECT_EQ(server.get("/ready")["status"], "ready");
  server.api->drain();
  expect_error(server.ask("GET", "/ready"), 503, "unavailable");
  EXPECT_EQ(server.get("/health")["status"], "draining");
  expect_error(server.ask("POST", "/v1/chat/completions", plain_chat), 503, "unavailable");
}

// The gate blocks the engine, so that no request ends by itself.
TEST(Api, ShutdownEndsEveryRequest) {
  TinyServer server;
  const auto body = [](bool stream, const char* schema) {
    Json out = Json::parse(plain_chat);
    out["max_tokens"] = 100;
    out["stream"] = stream;
    if (schema) {
      out["response_format"] = {{"type", "json_schema"},
                                {"json_schema", {{"name", "n"}, {"schema", {{"type", "object"}, {schema, true}}}}}};
    }
    return out.dump();
  };
  const auto send = [](RawClient& client, const std::string& target, const std::string& text) {
    client.send("POST " + target +
                " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
                std::to_string(text.size()) + "\r\n\r\n" + text);
  };
  RawClient streaming(server.http->port());
  send(streaming, "/v1/chat/completions", body(true, "wait"));
  const std::string begin = streaming.read_to("\n\n");
  EXPECT_NE(begin.find("HTTP/1.1 200"), std::string::npos) << begin;
  {
    auto gate = server.masks.gate.lock();
    EXPECT_TRUE(gate.wait_for(60, [](const Gate& g) { return g.reached; }));
  }
  RawClient chat(server.http->port()), waiting_stream(server.http->port()), embedding(server.http->port());
  send(chat, "/v1/chat/completions", body(false, nullptr));
  send(waiting_stream, "/v1/chat/completions", body(true, nullptr));
  send(embedding, "/v1/embeddings", R"({"model": "org/tiny", "input": "abc"})");
  while (server.service->counts().queued < 3) std::this_thread::yield();
  server.api->drain();
  server.http->drain();
  server.api->finish();
  server.http->finish();
  for (RawClient* client : {&chat, &waiting_stream, &embedding}) {
    const Answer answer = client->answer();
    expect_error(answer, 503, "unavailable");
    EXPECT_EQ(answer.headers.at("retry-after"), "1");
    EXPECT_EQ(answer.headers.at("connection"), "close");
    EXPECT_EQ(Json::parse(answer.body)["error"]["type"], "server_error");
  }
  const std::string rest = streaming.read_to("0\r\n\r\n");
  EXPECT_NE(rest.find("\"code\":\"unavailable\""), std::string::npos) << rest;
  EXPECT_TRUE(streaming.ends());
  server.masks.gate.lock()->open = true;
  server.masks.gate.notify_all();
}

TEST(Api, AModifiedModelFileIsAFault) {
  const Scratch scratch;
  const std::filesystem::path file = scratch / "model.safetensors";
  write_file(file, "0123456789");
  auto watch = std::make_shared<FileWatch>();
  watch->add(MappedFile(file));
  TinySettings settings;
  settings.files = watch;
  TinyServer server(std::move(settings));
  EXPECT_EQ(server.get("/ready")["status"], "ready");
  std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) + std::chrono::seconds(1));
  expect_error(server.ask("POST", "/v1/chat/completions", plain_chat), 500, "model_file_fault");
  expect_error(server.ask("GET", "/ready"), 503, "model_file_fault");
}

TEST(Api, AModelFileFaultIsA500ThatNamesTheFile) {
  const Scratch scratch;
  write_file(scratch / "model.safetensors", "0123456789");
  auto watch = std::make_shared<FileWatch>();
  watch->add(MappedFile(scratch / "model.safetensors"));
  TinySettings settings;
  settings.files = watch;
  TinyServer server(std::move(settings));
  EXPECT_EQ(server.ask("POST", "/v1/chat/completions", plain_chat).status, 200);
  EXPECT_EQ(server.get("/ready")["status"], "ready");
  std::filesystem::resize_file(scratch / "model.safetensors", 4);
  const Json embedding = {{"model", "org/tiny"}, {"input", "abc"}};
  for (const Answer& answer : {server.ask("POST", "/v1/chat/completions", plain_chat),
                               server.ask("POST", "/v1/embeddings", embedding.dump())}) {
    expect_error(answer, 500, "model_file_fault");
    EXPECT_NE(answer.body.find("'model.safetensors'"), std::string::npos) << answer.body;
    EXPECT_EQ(answer.body.find(scratch.folder().string()), std::string::npos) << answer.body;
  }
  expect_error(server.ask("GET", "/ready"), 503, "model_file_fault");
  std::filesystem::resize_file(scratch / "model.safetensors", 10);
  expect_error(server.ask("GET", "/ready"), 503, "model_file_fault");
  EXPECT_EQ(server.get("/health")["status"], "ok");
  EXPECT_EQ(server.post("/v1/tokenize", {{"prompt", "ab"}})["count"], 2);
  const std::vector<Json> lines = server.log_lines(8);
  const auto names = [&](const Json& line) {
    return line.value("failure", "").find((scratch / "model.safetensors").string()) != std::string::npos;
  };
  EXPECT_GE(std::count_if(lines.begin(), lines.end(), names), 1);
}

// The longest token of the tiny vocabulary has 12 bytes, and the context 256 tokens.
TEST(Api, TextsBeyondTheContextAreRefusedBeforeTokenization) {
  TinyServer server;
  ASSERT_EQ(server.served.longest_token, 12);
  const std::string fits(12 * 256, ' '), longer(12 * 256 + 1, ' ');
  EXPECT_EQ(server.post("/v1/tokenize", {{"prompt", fits}})["count"], 12 * 256);
  const auto message_of = [&](const char* route, Json body, const char* param) {
    body["model"] = "org/tiny";
    const Json error = server.post(route, body, 400)["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded") << error;
    EXPECT_EQ(error["param"], param) << error;
    return error["message"].get<std::string>();
  };
  const Json messages = {{{"role", "user"}, {"content", longer}}};
  for (const std::string& message : {message_of("/v1/tokenize", {{"prompt", longer}}, "prompt"),
                                     message_of("/v1/tokenize", {{"messages", messages}}, "messages"),
                                     message_of("/v1/completions", {{"prompt", {"a", longer}}}, "prompt"),
                                     message_of("/v1/embeddings", {{"input", longer}}, "input"),
                                     message_of("/v1/chat/completions", {{"messages", messages}}, "messages")}) {
    EXPECT_NE(message.find("bytes"), std::string::npos) << message;
  }
}

TEST(Api, ServesAPageWithoutExternalLinks) {
  TinyServer server;
  const Answer page = server.ask("GET", "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("v1/chat/completions"), std::string::npos);
  EXPECT_EQ(page.body.find("http://"), std::string::npos);
  EXPECT_EQ(page.body.find("https://"), std::string::npos);
}

TEST(Api, HeadEqualsGetWithoutABody) {
  TinyServer server;
  for (const char* target : {"/", "/health", "/ready", "/metrics", "/v1/models", "/v1/models/org/tiny", "/v1/adapters",
                             "/v1/models/other"}) {
    const Answer get = server.ask("GET", target);
    RawClient client(server.http->port());
    client.send(std::string("HEAD ") + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const std::string head = client.read_to("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 " + std::to_string(get.status) + " ")) << target << head;
    if (std::string(target) != "/metrics") {  // whose numbers change
      EXPECT_NE(head.find("Content-Length: " + get.headers.at("content-length") + "\r\n"), std::string::npos) << target;
    }
    EXPECT_NE(head.find("Content-Type: " + get.headers.at("content-type") + "\r\n"), std::string::npos) << target;
    // The next answer follows the head immediately.
    client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(client.answer().status, 200) << target;
  }
  RawClient client(server.http->port());
  client.send("HEAD /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(client.read_to("\r\n\r\n").starts_with("HTTP/1.1 405 "));
  EXPECT_EQ(server.ask("PUT", "/v1/models/x").headers["allow"], "GET, HEAD, DELETE");
}

// A request that shutdown interrupts during parsing is answered and logged once, with one id.
TEST(Api, ARequestInterruptedByShutdownIsLoggedOnce) {
  TinySettings settings;
  settings.http.workers = 1;
  TinyServer server(std::move(settings));
  Guarded<Gate> gate;
  server.masks.before = [&] {
    auto held = gate.lock();
    held->reached = true;
    gate.notify_all();
    EXPECT_TRUE(held.wait_for(60, [](const Gate& g) { return g.open; }));
  };
  RawClient client(server.http->port());
  const std::string body = Json{{"model", "org/tiny"}, {"prompt", "a"}, {"guided_json", Json::object()}}.dump();
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
              ("Content-Length: " + std::to_string(body.size())) + "\r\n\r\n" + body);
  EXPECT_TRUE(gate.lock().wait_for(60, [](const Gate& g) { return g.reached; }));
  server.api->finish();
  server.http->drain();
  server.http->finish();
  const Answer answer = client.answer();
  EXPECT_EQ(answer.status, 503);
  gate.lock()->open = true;
  gate.notify_all();
  server.http.reset();  // all its exchanges have ended
  const std::vector<Json> lines = server.log_lines(1);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["status"], 503);
  EXPECT_EQ(lines[0]["id"], answer.headers.at("x-request-id"));
}

}  // namespace
}  // namespace ingot::server
