// eval.prompts: what the model generates for them at an evaluation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/e2e/program.h"

namespace ingot::e2e {
namespace {

class Samples : public testing::Test {
 protected:
  // The first sample of a run that changes no weight.
  std::string sample(const std::string& name, const std::string& lines, const std::string& prompt) {
    write(program_ / (name + ".jsonl"), lines);
    return sample_of(name, {{"train", (program_ / (name + ".jsonl")).string()}, {"sequence_length", 64}}, prompt);
  }
  std::string sample_of(const std::string& name, Json data, const std::string& prompt) {
    data["eval"] = data["train"];
    const Json recipe = {{"name", name},
                         {"model", model_},
                         {"adapter", {{"rank", 2}}},
                         {"data", data},
                         {"optimizer", {{"lr", 0}}},
                         {"steps", 1},
                         {"batch", {{"global", 1}}},
                         {"precision", "fp32"},
                         {"eval", {{"prompts", {prompt}}, {"sample_tokens", 12}}},
                         {"run_dir", (program_ / "runs").string()},
                         {"device", "cpu"},
                         {"threads", 1}};
    write(program_ / (name + ".yaml"), recipe.dump());
    const Result result = program_.run({"finetune", (program_ / (name + ".yaml")).string()});
    EXPECT_EQ(result.code, 0) << result.error;
    output_ = result.output;
    const std::vector<Json> samples = events_of(program_ / "runs" / name, "sample");
    EXPECT_EQ(samples.size(), 2U);  // before and after training
    EXPECT_EQ(samples.at(0).at("prompt"), prompt);
    return samples.at(0).at("text");
  }

  Program program_;
  std::string model_ = make_text_model(program_, true);
  std::string output_;
};

TEST_F(Samples, OfChatDataUseTheChatTemplate) {
  const std::string chats =
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]})";
  const std::string text = R"({"text": "A line of text."})";
  const std::string rendered = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  const std::string expected = sample("rendered", text, rendered);
  EXPECT_NE(sample("plain", text, "Hi"), expected);
  EXPECT_EQ(sample("chat", chats, "Hi"), expected);
  EXPECT_EQ(sample("instruction", R"({"instruction": "Hi", "output": "Hello."})", "Hi"), expected);
  // For packed data, in either order, the recipe states the original format.
  const std::string packed = (program_ / "packed").string();
  program_.report(
      {"data", "pack", (program_ / "chat.jsonl").string(), "--model", model_, "--length", "64", "--out", packed});
  for (const char* order : {"ingot", "streaming"}) {
    Json data = {{"train", packed}, {"sequence_length", 64}, {"order", order}};
    EXPECT_NE(sample_of(fmt::format("{}-text", order), data, "Hi"), expected);
    for (const char* format : {"chat", "sharegpt", "instruction"}) {
      data["format"] = format;
      EXPECT_EQ(sample_of(fmt::format("{}-{}", order, format), data, "Hi"), expected) << order << " " << format;
    }
  }
  EXPECT_NE(output_.find("\n  base:   "), std::string::npos) << output_;
  EXPECT_NE(output_.find("\n  tuned:  "), std::string::npos) << output_;
}

}  // namespace
}  // namespace ingot::e2e
