// /v1/embeddings, over a real socket.
#include <gtest/gtest.h>

#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

TEST(Api, EmbeddingsAreNormalisedAndReproducible) {
  TinyServer server;
  const Json body = {{"model", "org/tiny"}, {"input", {"abc", "hello there"}}};
  const Json reply = server.post("/v1/embeddings", body);
  ASSERT_EQ(reply["data"].size(), 2U);
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 14);
  for (const Json& item : reply["data"]) {
    ASSERT_EQ(item["embedding"].size(), 64U);
    double squares = 0;
    for (const Json& value : item["embedding"]) squares += value.get<double>() * value.get<double>();
    EXPECT_NEAR(squares, 1, 1e-5);
  }
  EXPECT_NE(reply["data"][0]["embedding"], reply["data"][1]["embedding"]);
  // Alone, and given as ids, the embedding is the same up to rounding.
  const Json alone =
      server.post("/v1/embeddings", {{"model", "org/tiny"}, {"input", server.tokenizer->encode("hello there")}});
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_NEAR(alone["data"][0]["embedding"][i].get<double>(), reply["data"][1]["embedding"][i].get<double>(), 1e-5);
  }
  Json coded = body;
  coded["encoding_format"] = "base64";
  const std::string text = server.post("/v1/embeddings", coded)["data"][0]["embedding"];
  ASSERT_EQ(text.size(), (64 * 4 + 2) / 3 * 4U);
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t group = 0;
    for (size_t k = 0; k < 4; ++k) {
      const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
      group = group << 6 | static_cast<uint32_t>(text[i + k] == '=' ? 0 : digits.find(text[i + k]));
    }
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(group >> shift & 255);
  }
  for (size_t i = 0; i < 64; ++i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    EXPECT_FLOAT_EQ(value, reply["data"][0]["embedding"][i].get<float>());
  }
  Json cut = body;
  cut["dimensions"] = 8;
  EXPECT_EQ(server.post("/v1/embeddings", cut, 400)["error"]["param"], "dimensions");
  EXPECT_EQ(
      server.post("/v1/embeddings", {{"model", "org/tiny"}, {"input", std::string(300, 'a')}}, 400)["error"]["code"],
      "context_length_exceeded");
}

TEST(Api, EmbeddingsAreLimitedToTheContext) {
  TinyServer server;
  const auto body = [](size_t tokens) { return Json{{"model", "org/tiny"}, {"input", std::string(tokens, 'a')}}; };
  EXPECT_EQ(server.post("/v1/embeddings", body(256))["usage"]["prompt_tokens"], 256);
  EXPECT_EQ(server.post("/v1/embeddings", body(257), 400)["error"]["code"], "context_length_exceeded");
  server.served.hidden = int64_t{1} << 21;  // three of them exceed the limit of an answer
  const Json refused = server.post("/v1/embeddings", {{"model", "org/tiny"}, {"input", {"a", "b", "c"}}}, 400)["error"];
  EXPECT_EQ(refused["param"], "input");
  EXPECT_NE(refused["message"].get<std::string>().find("several requests"), std::string::npos);
}

}  // namespace
}  // namespace ingot::server
