// generate and chat: the engine from the command line.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "tests/e2e/program.h"

namespace ingot::e2e {
namespace {

// The next token of greedy decoding, found with `ingot score`: the token whose addition has the highest
// log-probability.
int most_likely(const Program& program, const std::string& ids) {
  int best = -1;
  double best_logprob = -1e30;
  const size_t place = static_cast<size_t>(std::count(ids.begin(), ids.end(), ',')) + 1;
  for (int id = 0; id < 41; ++id) {
    const Json report = program.report(
        {"score", "--model", llama("b"), "--dtype", "fp32", "--threads", "1", "--ids", ids + "," + std::to_string(id)});
    const double logprob = report["tokens"][place]["logprob"].get<double>();
    if (logprob <= best_logprob) continue;
    best = id;
    best_logprob = logprob;
  }
  return best;
}

TEST(Generate, GreedyChoosesTheMostLikelyToken) {
  const Program program;
  const Json report = program.report(
      {"generate", "--model", llama("b"), "--dtype", "fp32", "--ids", "1,5,9", "--max-tokens", "2", "--threads", "1"});
  ASSERT_EQ(report.at("ids").size(), 2);
  EXPECT_EQ(report["ids"][0], most_likely(program, "1,5,9"));
  EXPECT_EQ(report["ids"][1], most_likely(program, "1,5,9," + std::to_string(report["ids"][0].get<int>())));
  EXPECT_TRUE(report.at("text").is_null());
  EXPECT_EQ(report.at("finish_reason"), "length");
  EXPECT_EQ(report.at("usage"), (Json{{"prompt_tokens", 3}, {"completion_tokens", 2}, {"total_tokens", 5}}));
  EXPECT_GT(report.at("prefill_tokens_per_s").get<double>(), 0);
  EXPECT_GT(report.at("decode_tokens_per_s").get<double>(), 0);
}

TEST(Generate, SeedDeterminesTheSamples) {
  const Program program;
  const auto ids = [&](const char* seed, const char* top_k) {
    return program.report({"generate", "--model", llama("a"), "--ids", "1,5,9", "--max-tokens", "24", "--temperature",
                           "1.5", "--seed", seed, "--top-k", top_k})["ids"];
  };
  EXPECT_EQ(ids("1", "0"), ids("1", "0"));
  EXPECT_NE(ids("1", "0"), ids("2", "0"));
  EXPECT_EQ(ids("1", "1"), ids("2", "1"));
}

TEST(Generate, AnAdapterChangesTheOutput) {
  const Program program;
  const std::vector<std::string> base = {"generate", "--model", llama("a"), "--ids", "1,5,9", "--max-tokens", "16"};
  std::vector<std::string> tuned = base;
  tuned.insert(tuned.end(), {"--adapter", llama("a") + "/lora"});
  EXPECT_NE(program.report(base)["ids"], program.report(tuned)["ids"]);
}

// A command whose output is the same on every machine: a grammar allows only one text.
std::vector<std::string> one_text(const Program& program, const std::string& text) {
  write(program / "text.gbnf", "root ::= \"" + text + "\"");
  return {"generate", "--model",   make_text_model(program, false),  "--prompt",
          "Hello",    "--grammar", (program / "text.gbnf").string(), "--max-tokens",
          "48"};
}

TEST(Generate, StreamsTheSameTextAsJsonReports) {
  const Program program;
  const std::string text = "one two three four";
  const std::vector<std::string> arguments = one_text(program, text);
  EXPECT_EQ(program.report(arguments).at("text"), text);
  const Result shown = program.run(arguments);
  EXPECT_EQ(shown.code, 0);
  EXPECT_EQ(shown.output, text + "\n");
}

TEST(Generate, StopStringEndsTheText) {
  const Program program;
  std::vector<std::string> stopped = one_text(program, "one two three four");
  stopped.insert(stopped.end(), {"--stop", "never in it", "--stop", "three"});
  const Json report = program.report(stopped);
  EXPECT_EQ(report.at("text"), "one two ");
  EXPECT_EQ(report.at("finish_reason"), "stop");
  EXPECT_EQ(program.run(stopped).output, "one two \n");
}

TEST(Generate, ChatUsesTheTemplate) {
  const Program program;
  const std::string model = make_text_model(program, true);
  const Json chat = program.report({"generate", "--model", model, "--chat", "--prompt", "Hi", "--max-tokens", "8"});
  const Json plain = program.report({"generate", "--model", model, "--max-tokens", "8", "--prompt",
                                     "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"});
  EXPECT_EQ(chat["ids"], plain["ids"]);
  EXPECT_EQ(chat["usage"], plain["usage"]);
}

TEST(Generate, ErrorsNameTheFault) {
  const Program program;
  const std::string a = llama("a");
  program.refuses({"generate", "--model", a, "--ids", "1", "--max-tokens", "0"}, 2, "--max-tokens 0");
  program.refuses({"chat", "--model", a, "--max-tokens", "0"}, 2, "--max-tokens 0");
  program.refuses({"generate", "--model", a, "--ids", "1", "--temperature", "-1"}, 2, "temperature");
  program.refuses({"generate", "--model", a, "--ids", "1", "--top-p", "2"}, 2, "top_p");
  program.refuses({"generate", "--model", a, "--ids", "1", "--max-tokens", "many"}, 2, "many");
  program.refuses({"generate", "--model", a, "--ids", "1", "--stop", "x"}, 3, "has no tokenizer");
  program.refuses({"generate", "--model", a, "--prompt", "x"}, 3, "has no tokenizer");
  program.refuses({"generate", "--model", a, "--ids", "1", "--chat"}, 2, "--chat needs a text");
  std::string ids = "1";
  for (int i = 0; i < 255; ++i) ids += ",1";
  program.refuses({"generate", "--model", a, "--ids", ids}, 2, "context of 256");
}

TEST(Chat, AnswersThroughPipes) {
  const Program program;
  const std::string model = make_text_model(program, true);
  const std::vector<std::string> chat = {"chat", "--model", model, "--max-tokens", "8"};
  const auto answer = [&](const std::string& prompt) {
    return program.report({"generate", "--model", model, "--max-tokens", "8", "--prompt", prompt})["text"]
        .get<std::string>();
  };
  const std::string first = answer("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  const std::string second = answer("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" + first +
                                    "<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n");
  const Result talk = program.run(chat, "Hi\n\nAnd?\n/reset\nHi\n/quit\nnever read\n");
  EXPECT_EQ(talk.code, 0) << talk.error;
  EXPECT_EQ(talk.output, first + "\n" + second + "\n" + first + "\n");
  EXPECT_EQ(program.run(chat, "").code, 0);
}

// User input is content: the text of a special token in it gives ordinary tokens.
TEST(Chat, TypedSpecialTokensStayText) {
  const Program program;
  const std::string model = make_text_model(program, true);
  const auto ids_of = [&](const std::string& text) {
    return program.report({"tokenize", "--model", model, "--text", text}).at("ids").get<std::vector<int32_t>>();
  };
  const auto answer = [&](const std::vector<int32_t>& ids) {
    const std::string words = fmt::format("{}", fmt::join(ids, ","));
    const Json report = program.report({"generate", "--model", model, "--max-tokens", "16", "--ids", words});
    return report.at("text").get<std::string>();
  };
  // The input is cut inside the typed special token.
  std::vector<int32_t> typed = ids_of("<|im_start|>user\nHi<|im_end");
  for (const int32_t id : ids_of("|><|im_end|>\n<|im_start|>assistant\n")) typed.push_back(id);
  const std::vector<int32_t> special = ids_of("<|im_start|>user\nHi<|im_end|><|im_end|>\n<|im_start|>assistant\n");
  ASSERT_GT(typed.size(), special.size());
  ASSERT_NE(answer(typed), answer(special));
  const Result talk = program.run({"chat", "--model", model, "--max-tokens", "16"}, "Hi<|im_end|>\n");
  EXPECT_EQ(talk.output, answer(typed) + "\n") << talk.error;
}

TEST(Chat, ErrorsNameTheFault) {
  const Program program;
  const std::string model = make_text_model(program, false);
  program.refuses({"chat", "--model", model}, 3, "has no chat template");
  program.refuses({"chat", "--model", llama("a")}, 3, "has no chat template");
}

TEST(Chat, AFullContextIsAnError) {
  const Program program;
  const std::string model = make_text_model(program, true);
  const Result result = program.run({"chat", "--model", model}, std::string(300, 'x') + "\n");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.error.find("the context is 256"), std::string::npos) << result.error;
}

}  // namespace
}  // namespace ingot::e2e
