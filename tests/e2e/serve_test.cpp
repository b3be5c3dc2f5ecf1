// ingot serve as a program: what it refuses, what it answers, how it ends.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/program.h"
#include "tests/server/raw_client.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

TEST(Serve, WhatItRefuses) {
  const Program program;
  program.refuses({"serve", "--model", llama("a"), "--host", "0.0.0.0"}, 2, "without keys");
  program.refuses({"serve", "--model", llama("a"), "--port", "70000"}, 2, "--port 70000");
  program.refuses({"serve", "--model", llama("a"), "--threads", "1"}, 3, "has no tokenizer");
  program.refuses({"serve", "--model", llama("a"), "--adapter-slots", "0"}, 2, "--adapter-slots");
  for (const char* option : {"--adapter-slots", "--adapter-rank", "--adapter-mib"})
    program.refuses({"serve", "--model", llama("a"), option, "64"}, 2, "without --adapters");
  program.refuses({"serve", "--model", llama("a"), "--weights", "int3"}, 2, "--weights 'int3'");
  program.refuses({"serve", "--model", llama("b"), "--weights", "int8"}, 3, "not whole q8_0 blocks of 32");
  program.refuses({"serve", "--model", llama("a"), "--queue", "4", "--queue-per-key", "5"}, 2, "at most --queue, 4");
  write(program / "keys", "# nothing\n");
  program.refuses({"serve", "--model", llama("a"), "--api-key-file", (program / "keys").string()}, 2, "holds no key");
}

class Serving : public testing::Test {
 protected:
  Serving() {
    fs::create_directories(program_ / "adapters");
    fs::copy(fs::path(llama("a")) / "lora", program_ / "adapters" / "poet", fs::copy_options::recursive);
    fs::create_directories(program_ / "outside");
    fs::create_directory_symlink(program_ / "outside", program_ / "adapters" / "leads-out");
  }
  static int port_of(Process& process) {
    const std::string mark = "answers at http://127.0.0.1:";
    for (;;) {
      const std::string said = process.result().error;
      const size_t at = said.find(mark);
      if (at != std::string::npos && said.find('\n', at) != std::string::npos) {
        return std::stoi(said.substr(at + mark.size()));
      }
      if (process.wait(std::chrono::milliseconds(10))) {
        ADD_FAILURE() << "it ended by itself: " << said;
        return 0;
      }
    }
  }
  static server::Answer ask(int port, const std::string& method, const std::string& target,
                            const std::string& body = "") {
    server::RawClient client(port);
    std::string request = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n";
    if (!body.empty()) {
      request += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    }
    client.send(request + "\r\n" + body);
    return client.answer();
  }
  static std::vector<double> embedding(int port, const std::string& model) {
    const server::Answer answer =
        ask(port, "POST", "/v1/embeddings", Json{{"model", model}, {"input", "Hello"}}.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body)["data"][0]["embedding"];
  }
  static std::string completion(int port, const std::string& model) {
    const Json body = {{"model", model}, {"prompt", "Hello"}, {"temperature", 0}, {"max_tokens", 12}};
    const server::Answer answer = ask(port, "POST", "/v1/completions", body.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body)["choices"][0]["text"];
  }

  Program program_;
  std::string model_ = make_text_model(program_, true);
};

TEST_F(Serving, SaysWhatGenerateSaysAndEndsWhenTold) {
  const std::vector<std::string> generate = {"generate", "--model",      model_, "--dtype",   "fp32", "--prompt",
                                             "Hello",    "--max-tokens", "12",   "--threads", "1"};
  std::vector<std::string> tuned = generate;
  tuned.insert(tuned.end(), {"--adapter", llama("a") + "/lora"});
  const std::string base_text = program_.report(generate)["text"];
  const std::string tuned_text = program_.report(tuned)["text"];

  Process process({"serve", "--model", model_, "--dtype", "fp32", "--name", "tiny", "--port", "0", "--threads", "1",
                   "--adapters", (program_ / "adapters").string(), "--adapter-slots", "1", "--access-log",
                   (program_ / "log").string()});
  const int port = port_of(process);
  EXPECT_EQ(ask(port, "GET", "/ready").status, 200);
  EXPECT_EQ(completion(port, "tiny"), base_text);
  EXPECT_EQ(completion(port, "poet"), tuned_text);
  EXPECT_EQ(ask(port, "POST", "/v1/adapters", R"({"name": "leads-out"})").status, 404);
  EXPECT_EQ(ask(port, "POST", "/v1/adapters", R"({"name": "nobody"})").status, 404);
  fs::copy(program_ / "adapters" / "poet", program_ / "adapters" / "second", fs::copy_options::recursive);
  EXPECT_EQ(ask(port, "POST", "/v1/adapters", R"({"name": "second"})").status, 200);
  EXPECT_EQ(completion(port, "second"), tuned_text);
  EXPECT_EQ(ask(port, "DELETE", "/v1/adapters/second").status, 200);
  EXPECT_EQ(ask(port, "GET", "/v1/models/second").status, 404);
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(std::chrono::minutes(5)), 130) << process.result().error;
  EXPECT_NE(read(program_ / "log").find("\"path\":\"/v1/completions\""), std::string::npos);
  EXPECT_EQ(read(program_ / "log").find("Hello"), std::string::npos);
}

// Weights kept in int8 by option, as generate keeps them, adapters beside them.
TEST_F(Serving, SaysInInt8WhatGenerateSaysInInt8) {
  const auto serve = [&](const std::string& weights) {
    return std::vector<std::string>{"serve",
                                    "--model",
                                    model_,
                                    "--weights",
                                    weights,
                                    "--name",
                                    "tiny",
                                    "--port",
                                    "0",
                                    "--threads",
                                    "1",
                                    "--adapters",
                                    (program_ / "adapters").string()};
  };
  std::vector<std::string> generate = {"generate", "--model",      model_, "--weights", "int8", "--prompt",
                                       "Hello",    "--max-tokens", "12",   "--threads", "1"};
  const std::string base_text = program_.report(generate)["text"];
  generate.insert(generate.end(), {"--adapter", llama("a") + "/lora"});
  const std::string tuned_text = program_.report(generate)["text"];
  EXPECT_NE(base_text, tuned_text);
  Process int8(serve("int8")), plain(serve("auto"));
  const int port = port_of(int8);
  EXPECT_EQ(completion(port, "tiny"), base_text);
  EXPECT_EQ(completion(port, "poet"), tuned_text);
  const std::vector<double> found = embedding(port, "tiny"), other = embedding(port_of(plain), "tiny");
  ASSERT_EQ(found.size(), other.size());
  EXPECT_NE(found, other) << "the weights are not in int8";
}

// Whatever a random model would say.
TEST_F(Serving, AnswersInASchema) {
  Process process({"serve", "--model", model_, "--dtype", "fp32", "--name", "tiny", "--port", "0", "--threads", "1"});
  const int port = port_of(process);
  const auto request = [](const Json& schema, int seed) {
    Json body = {{"model", "tiny"}, {"max_tokens", 200}, {"seed", seed}};
    body["messages"] = {{{"role", "user"}, {"content", "Numbers?"}}};
    body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "numbers"}, {"schema", schema}}}};
    return body.dump();
  };
  const Json schema = Json::parse(R"({"type": "object", "required": ["n", "b"], "additionalProperties": false,
      "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 5}, "b": {"type": "boolean"}}})");
  for (int seed = 0; seed < 4; ++seed) {
    const server::Answer answer = ask(port, "POST", "/v1/chat/completions", request(schema, seed));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json choice = Json::parse(answer.body)["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "stop");
    const Json value = Json::parse(choice["message"]["content"].get<std::string>(), nullptr, false);
    ASSERT_TRUE(value.is_object()) << choice;
    EXPECT_EQ(value.size(), 2);
    EXPECT_GE(value["n"], 3);
    EXPECT_LE(value["n"], 5);
    EXPECT_TRUE(value["b"].is_boolean());
  }
  const server::Answer refused =
      ask(port, "POST", "/v1/chat/completions", request({{"type", "string"}, {"x-odd", 1}}, 0));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("x-odd"), std::string::npos) << refused.body;
}

}  // namespace
}  // namespace ingot::e2e
