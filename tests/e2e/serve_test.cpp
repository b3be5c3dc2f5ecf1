// ingot serve as a program: errors, answers, and how it ends.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <regex>

#include "tests/e2e/program.h"
#include "tests/e2e/server.h"
#include "tests/server/tls_client.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

TEST(Serve, ErrorsNameTheFault) {
  const Program program;
  program.refuses({"serve", "--model", llama("a"), "--host", "0.0.0.0"}, 2, "without API keys");
  program.refuses({"serve", "--model", llama("a"), "--port", "70000"}, 2, "--port 70000");
  program.refuses({"serve", "--model", llama("a"), "--threads", "1"}, 3, "has no tokenizer");
  program.refuses({"serve", "--model", llama("a"), "--adapter-slots", "0"}, 2, "--adapter-slots");
  for (const char* option : {"--adapter-slots", "--adapter-rank", "--adapter-mib"})
    program.refuses({"serve", "--model", llama("a"), option, "64"}, 2, "without --adapters");
  program.refuses({"serve", "--model", llama("a"), "--connections", "4", "--connections-per-address", "5"}, 2,
                  "at most --connections, 4");
  program.refuses({"serve", "--model", llama("a"), "--weights", "int3"}, 2, "--weights 'int3'");
  program.refuses({"serve", "--model", llama("b"), "--weights", "int8"}, 3, "not a multiple of the q8_0 block size 32");
  program.refuses({"serve", "--model", llama("a"), "--queue", "4", "--queue-per-key", "5"}, 2, "at most --queue, 4");
  program.refuses({"serve", "--model", llama("a"), "--cors-origin", "https://app.example/"}, 2, "is not an origin");
  program.refuses({"serve", "--model", llama("a"), "--cors-origin", "*"}, 2, "without API keys");
  program.refuses({"serve", "--model", llama("a"), "--adapter", "x"}, 2, "'--adapter' is not an option");
  write(program / "keys", "# nothing\n");
  program.refuses({"serve", "--model", llama("a"), "--api-key-file", (program / "keys").string()}, 2,
                  "contains no key");
}

class Serving : public testing::Test {
 protected:
  Serving() {
    fs::create_directories(program_ / "adapters");
    fs::copy(fs::path(llama("a")) / "lora", program_ / "adapters" / "poet", fs::copy_options::recursive);
    fs::copy(fs::path(llama("a")) / "lora", program_ / "outside", fs::copy_options::recursive);
    fs::create_directory_symlink(program_ / "outside", program_ / "adapters" / "leads-out");
  }
  // Waits for these words in the output.
  static void wait_for_words(Process& process, const std::string& words) {
    while (process.result().error.find(words) == std::string::npos) {
      if (process.wait(std::chrono::milliseconds(10))) {
        FAIL() << "the server ended: " << process.result().error;
      }
    }
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

TEST_F(Serving, AnswersLikeGenerateAndEndsOnSignal) {
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
  EXPECT_EQ(completion(port, "leads-out"), tuned_text) << "symbolic links are followed";
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

// The memory plan is printed before memory is allocated, and a context that does not fit is refused.
TEST_F(Serving, PrintsItsMemoryPlanFirst) {
  Json config = Json::parse(read(model_ + "/config.json"));
  config["max_position_embeddings"] = 2147483647;
  write(model_ + "/config.json", config.dump());
  program_.refuses({"serve", "--model", model_, "--port", "0", "--kv-cache-mib", "2", "--context", "2147483647"}, 4,
                   "a context of 2147483647 tokens needs");
  program_.refuses({"serve", "--model", model_, "--kv-cache-mib", "2", "--pages", "7"}, 2, "not both");
  Process process({"serve", "--model", model_, "--dtype", "fp32", "--name", "tiny", "--port", "0", "--threads", "1",
                   "--kv-cache-mib", "2"});
  const int port = port_of(process);
  const std::string said = process.result().error;
  EXPECT_NE(said.find("KV cache 2"), std::string::npos) << said;
  EXPECT_NE(said.find("bodies up to "), std::string::npos) << said;
  EXPECT_NE(said.find("the process will use "), std::string::npos) << said;
  std::smatch cut;
  ASSERT_TRUE(std::regex_search(
      said, cut, std::regex("context of 2147483647 tokens does not fit[^:]*: the context is limited to ([0-9]+)")))
      << said;
  const Json tokens = Json::parse(ask(port, "POST", "/v1/tokenize", R"({"prompt": "Hello"})").body);
  EXPECT_EQ(tokens["max_model_len"], std::stoll(cut[1]));
  EXPECT_FALSE(completion(port, "tiny").empty());
}

// Weights quantized to int8 at loading, as in generate, with adapters.
TEST_F(Serving, AnswersLikeGenerateWithInt8Weights) {
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

TEST_F(Serving, AnswersLikeGenerateWithInt8Activations) {
  const std::vector<std::string> options = {"--model", model_, "--weights", "int8", "--compute", "int8"};
  std::vector<std::string> serve = {"serve", "--name", "tiny", "--port", "0"};
  std::vector<std::string> generate = {"generate", "--prompt", "Hello", "--max-tokens", "12"};
  serve.insert(serve.end(), options.begin(), options.end());
  generate.insert(generate.end(), options.begin(), options.end());
  Process server(serve);
  const int port = port_of(server);
  const std::string text = program_.report(generate)["text"];
  EXPECT_EQ(completion(port, "tiny"), text);
  const server::Answer answer =
      ask(port, "POST", "/v1/completions", R"({"model":"tiny","prompt":"Hello","max_tokens":1})");
  EXPECT_NE(answer.body.find("_int8_activations"), std::string::npos) << answer.body;
}

// Constraints hold for whatever a random model would generate.
TEST_F(Serving, AnswersFollowExpressionsGrammarsAndChoices) {
  Process process({"serve", "--model", model_, "--dtype", "fp32", "--name", "tiny", "--port", "0", "--threads", "1"});
  const int port = port_of(process);
  const auto text = [&](const Json& constraint) {
    Json body = {{"model", "tiny"}, {"prompt", "Hello"}, {"max_tokens", 100}, {"seed", 3}};
    body.update(constraint);
    const server::Answer answer = ask(port, "POST", "/v1/completions", body.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    const Json choice = Json::parse(answer.body)["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "stop") << choice;
    return choice["text"].get<std::string>();
  };
  for (int i = 0; i < 2; ++i) {  // compiled once, then cached
    const std::string matched = text({{"guided_regex", "[ab]{3}-[cd]{2}"}});
    EXPECT_TRUE(std::regex_match(matched, std::regex("[ab]{3}-[cd]{2}"))) << matched;
    const std::string derived = text({{"guided_grammar", "root ::= \"x\" [yz]{4}"}});
    EXPECT_TRUE(std::regex_match(derived, std::regex("x[yz]{4}"))) << derived;
    const std::string chosen = text({{"structured_outputs", {{"choice", {"left", "right"}}}}});
    EXPECT_TRUE(chosen == "left" || chosen == "right") << chosen;
  }
  for (const char* wrong : {"(a", "(a)\\\\1"}) {
    const std::string body = std::string(R"({"model": "tiny", "prompt": "x", "guided_regex": ")") + wrong + "\"}";
    const server::Answer refused = ask(port, "POST", "/v1/completions", body);
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_EQ(Json::parse(refused.body)["error"]["param"], "guided_regex");
  }
}

// Constraints hold for whatever a random model would generate.
TEST_F(Serving, AnswersFollowASchema) {
  Process process({"serve", "--model", model_, "--dtype", "fp32", "--name", "tiny", "--port", "0", "--threads", "1"});
  const int port = port_of(process);
  const auto request = [](const Json& schema, int seed, bool strict = false) {
    Json body = {{"model", "tiny"}, {"max_tokens", 200}, {"seed", seed}};
    body["messages"] = {{{"role", "user"}, {"content", "Numbers?"}}};
    body["response_format"] = {{"type", "json_schema"},
                               {"json_schema", {{"name", "numbers"}, {"schema", schema}, {"strict", strict}}}};
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
      ask(port, "POST", "/v1/chat/completions", request({{"type", "string"}, {"x-odd", 1}}, 0, true));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("x-odd"), std::string::npos) << refused.body;
  const server::Answer taken =
      ask(port, "POST", "/v1/chat/completions", request({{"type", "string"}, {"x-odd", 1}}, 0, false));
  EXPECT_EQ(taken.status, 200) << taken.body;
}

// SIGHUP: the key file and the log file are opened again after rotation, and the server continues even when a file is
// invalid.
TEST_F(Serving, SighupReloadsKeysAndReopensTheLog) {
  const std::string first = "correct-horse-battery", second = "another-key-of-mine";
  write(program_ / "keys", first + " alice\n");
  Process process({"serve", "--model", model_, "--dtype", "fp32", "--name", "tiny", "--port", "0", "--threads", "1",
                   "--api-key-file", (program_ / "keys").string(), "--access-log", (program_ / "log").string()});
  const int port = port_of(process);
  const auto status = [&](const std::string& key) {
    server::RawClient client(port);
    client.send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key + "\r\n\r\n");
    return client.answer().status;
  };
  EXPECT_EQ(status(first), 200);
  EXPECT_EQ(status(second), 401);
  // Log lines are written after the answers.
  for (std::string log; std::ranges::count(log, '\n') < 2; log = read(program_ / "log")) {
    ASSERT_FALSE(process.wait(std::chrono::milliseconds(10))) << process.result().error;
  }
  fs::rename(program_ / "log", program_ / "log.1");
  write(program_ / "keys", second + " bob\n");
  process.kill(SIGHUP);
  wait_for_words(process, "the keys are read again");
  EXPECT_EQ(status(first), 401);
  EXPECT_EQ(status(second), 200);
  write(program_ / "keys", "short\n");
  process.kill(SIGHUP);
  wait_for_words(process, "the keys are not read again");
  EXPECT_EQ(status(second), 200);
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(std::chrono::minutes(5)), 130) << process.result().error;
  EXPECT_NE(read(program_ / "log.1").find("\"key\":\"alice\""), std::string::npos);
  EXPECT_EQ(read(program_ / "log.1").find("\"key\":\"bob\""), std::string::npos);
  EXPECT_NE(read(program_ / "log").find("\"key\":\"bob\""), std::string::npos);
}

// Connections after SIGHUP use the renewed certificate and key; an invalid pair is not used.
TEST_F(Serving, SighupReloadsTheCertificate) {
  const fs::path certificate = program_ / "cert.pem", key = program_ / "key.pem";
  server::write_certificate(certificate, key, 1);
  Process process({"serve", "--model", model_, "--dtype", "fp32", "--name", "tiny", "--port", "0", "--threads", "1",
                   "--tls-cert", certificate.string(), "--tls-key", key.string()});
  const int port = port_of(process);
  EXPECT_EQ(server::TlsClient(port).number(), 1);
  server::write_certificate(certificate, key, 2);
  EXPECT_EQ(server::TlsClient(port).number(), 1);
  process.kill(SIGHUP);
  wait_for_words(process, "the certificate is read again");
  server::TlsClient renewed(port);
  EXPECT_EQ(renewed.number(), 2);
  write(certificate, "no certificate");
  process.kill(SIGHUP);
  wait_for_words(process, "the certificate is not read again");
  EXPECT_NE(process.result().error.find(certificate.string()), std::string::npos) << process.result().error;
  EXPECT_EQ(server::TlsClient(port).number(), 2);
  EXPECT_EQ(renewed.ask(), "HTTP/1.1 200") << "the old connection continues";
}

// The weights have the compute dtype and are therefore mapped.
TEST_F(Serving, ATruncatedModelFileFailsRequestsOnly) {
  const fs::path weights = fs::path(model_) / "model.safetensors";
  Process process({"serve", "--model", model_, "--dtype", "bf16", "--name", "tiny", "--port", "0", "--threads", "2",
                   "--access-log", (program_ / "log").string()});
  const int port = port_of(process);
  EXPECT_NE(completion(port, "tiny"), "");
  fs::resize_file(weights, 0);
  const Json body = {{"model", "tiny"}, {"prompt", "Hello"}, {"temperature", 0}, {"max_tokens", 12}};
  for (int i = 0; i < 2; ++i) {
    const server::Answer answer = ask(port, "POST", "/v1/completions", body.dump());
    EXPECT_EQ(answer.status, 500) << answer.body;
    EXPECT_NE(answer.body.find("'model.safetensors'"), std::string::npos) << answer.body;
  }
  EXPECT_EQ(ask(port, "GET", "/ready").status, 503);
  EXPECT_EQ(ask(port, "GET", "/health").status, 200);
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(std::chrono::minutes(5)), 130) << process.result().error;
  EXPECT_NE(process.result().error.find(weights.string()), std::string::npos) << process.result().error;
}

// `ingot model pull` replaces a file by rename: the old file is served, and later writes to it are detected.
TEST_F(Serving, AReplacedModelFileIsStillServed) {
  const fs::path weights = fs::path(model_) / "model.safetensors", old = fs::path(model_) / "old";
  Process process({"serve", "--model", model_, "--dtype", "bf16", "--name", "tiny", "--port", "0", "--threads", "1"});
  const int port = port_of(process);
  const std::string text = completion(port, "tiny");
  fs::rename(weights, old);
  write(weights, "another model");
  wait_for_words(process, "was renamed, removed or replaced");
  EXPECT_EQ(completion(port, "tiny"), text);
  EXPECT_EQ(ask(port, "GET", "/ready").status, 200);
  fs::last_write_time(old, fs::last_write_time(old) + std::chrono::seconds(1));
  const Json body = {{"model", "tiny"}, {"prompt", "Hello"}, {"max_tokens", 12}};
  const server::Answer answer = ask(port, "POST", "/v1/completions", body.dump());
  EXPECT_EQ(answer.status, 500) << answer.body;
  EXPECT_EQ(Json::parse(answer.body)["error"]["code"], "model_file_fault");
}

TEST_F(Serving, OneAddressMayHaveAQuarterOfTheConnections) {
  Process process({"serve", "--model", model_, "--dtype", "fp32", "--name", "tiny", "--port", "0", "--threads", "1",
                   "--connections", "4"});
  const int port = port_of(process);
  server::RawClient held(port);
  held.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(held.answer().status, 200);  // its connection stays open
  EXPECT_EQ(ask(port, "GET", "/health").status, 503);
}

TEST_F(Serving, HelpListsOnlyAcceptedOptions) {
  EXPECT_EQ(program_.run({"serve", "--help"}).output.find("--adapter "), std::string::npos);
}

// A folder with an incomplete adapter is named at the start; the other adapters are served.
TEST_F(Serving, AnIncompleteAdapterIsNamedAtTheStart) {
  fs::copy(program_ / "adapters" / "poet", program_ / "adapters" / "torn", fs::copy_options::recursive);
  fs::resize_file(program_ / "adapters" / "torn" / "adapter_model.safetensors", 20);
  Process process({"serve", "--model", model_, "--dtype", "fp32", "--name", "tiny", "--port", "0", "--threads", "1",
                   "--adapters", (program_ / "adapters").string()});
  const int port = port_of(process);
  const std::string said = process.result().error;
  const size_t at = said.find("cannot be used");
  EXPECT_NE(at, std::string::npos) << said;
  EXPECT_NE(said.find("torn"), std::string::npos) << said;
  EXPECT_NE(completion(port, "poet"), "");
}

// Every response that started before shutdown is complete.
TEST_F(Serving, ShutdownCompletesEveryResponse) {
  Process process({"serve", "--model", model_, "--dtype", "fp32", "--name", "tiny", "--port", "0", "--threads", "1",
                   "--sequences", "1", "--drain-seconds", "0", "--access-log", (program_ / "log").string()});
  const int port = port_of(process);
  const auto post = [](bool stream) {
    const Json body = {
        {"model", "tiny"}, {"prompt", "Hello"}, {"logit_bias", {{"2", -100}}}, {"max_tokens", 200}, {"stream", stream}};
    const std::string text = body.dump();
    return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(text.size()) + "\r\n\r\n" + text;
  };
  std::vector<std::unique_ptr<server::RawClient>> clients;
  for (int i = 0; i < 24; ++i) {
    clients.push_back(std::make_unique<server::RawClient>(port));
    clients.back()->send(post(i % 2 == 1));
  }
  process.kill(SIGTERM);
  for (size_t i = 0; i < clients.size(); ++i) {
    const server::Answer answer = clients[i]->answer();
    EXPECT_TRUE(answer.status == 200 || answer.status == 503) << i << ": " << answer.status;
    EXPECT_TRUE(answer.whole) << i << ": " << answer.body;
    if (answer.status == 503) EXPECT_EQ(Json::parse(answer.body)["error"]["code"], "unavailable");
  }
  EXPECT_EQ(process.wait(std::chrono::minutes(5)), 130) << process.result().error;
}

}  // namespace
}  // namespace ingot::e2e
