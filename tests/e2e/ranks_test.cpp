// Commands with a model that is divided among ranks (--tp, --pp), compared with one device.
#include <gtest/gtest.h>

#include <csignal>
#include <set>
#include <sstream>

#include "tensor/tolerance.h"
#include "tests/e2e/program.h"
#include "tests/e2e/server.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

const std::vector<std::vector<std::string>> layouts = {{"--tp", "2", "--threads", "2"},
                                                       {"--pp", "2", "--threads", "2"},
                                                       {"--tp", "2", "--pp", "2", "--threads", "4"},
                                                       {"--tp", "4", "--threads", "4"}};  // of two key/value heads

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Ranks, ScoreAsOneDevice) {
  const Program program;
  const std::vector<std::string> score = {"score", "--model",   llama("a"), "--adapter", llama("a") + "/lora",
                                          "--ids", "1,5,9,3,7", "--dtype",  "fp32"};
  const Json expected = program.report(with(score, {"--threads", "1"}));
  for (const std::vector<std::string>& layout : layouts) {
    const Json found = program.report(with(score, layout));
    for (size_t t = 1; t < 5; ++t) {
      EXPECT_NEAR(found["tokens"][t]["logprob"].get<double>(), expected["tokens"][t]["logprob"].get<double>(),
                  tolerance(DType::f32, 16 * 96));
    }
  }
}

TEST(Ranks, GenerateAndChatAsOneDevice) {
  const Program program;
  const std::vector<std::string> generate = {"generate", "--model",      llama("a"), "--adapter", llama("a") + "/lora",
                                             "--ids",    "1,5,9,3,7,11", "--dtype",  "fp32",      "--max-tokens",
                                             "16"};
  const std::string model = make_text_model(program, true);
  const std::vector<std::string> chat = {"chat", "--model", model, "--dtype", "fp32", "--max-tokens", "12"};
  const Json expected = program.report(with(generate, {"--threads", "1"}));
  const Result said = program.run(with(chat, {"--threads", "1"}), "Hello\nAgain\n");
  EXPECT_EQ(said.code, 0) << said.error;
  for (const std::vector<std::string>& layout : layouts) {
    EXPECT_EQ(program.report(with(generate, layout))["ids"], expected["ids"]);
    EXPECT_EQ(program.run(with(chat, layout), "Hello\nAgain\n").output, said.output);
  }
}

// The generated answers in a file of --items.
std::vector<std::string> texts_of(const std::string& items) {
  std::vector<std::string> texts;
  std::istringstream lines(read(items));
  for (std::string line; std::getline(lines, line);) {
    const Json item = Json::parse(line);
    for (const Json& model : item["models"]) {
      if (model.contains("text")) texts.push_back(model["text"]);
    }
  }
  return texts;
}

TEST(Ranks, EvaluateAsOneDevice) {
  const Program program;
  const std::string model = make_text_model(program, false), text = (program / "text.txt").string();
  const std::string tasks = (program / "tasks.jsonl").string();
  write(text, "The quick brown fox jumps over the lazy dog, and the dog does not mind.\n");
  write(tasks, R"({"context": "Who jumps?", "choices": ["fox", "dog"], "answer": 0})"
               "\n"
               R"({"prompt": "Who jumps?", "reference": "fox", "max_tokens": 4})"
               "\n");
  const std::string items = (program / "items.jsonl").string();
  const std::vector<std::string> eval = {"eval",   "--model", model,    "--adapter", llama("a") + "/lora",
                                         "--data", text,      "--task", tasks,       "--items",
                                         items,    "--dtype", "fp32"};
  const Json expected = program.report(with(eval, {"--threads", "1"}));
  const std::vector<std::string> expected_texts = texts_of(items);
  ASSERT_EQ(expected_texts.size(), 2);
  for (const std::vector<std::string>& layout : layouts) {
    const Json found = program.report(with(eval, layout));
    EXPECT_NEAR(found["loss"].get<double>(), expected["loss"].get<double>(), tolerance(DType::f32, 16 * 96));
    ASSERT_EQ(found["results"].size(), expected["results"].size());
    for (size_t row = 0; row < found["results"].size(); ++row) {
      const Json &one = found["results"][row], &other = expected["results"][row];
      EXPECT_EQ(one["metric"], other["metric"]);
      ASSERT_EQ(one["models"].size(), 2);
      for (size_t m = 0; m < 2; ++m) {
        const double value = other["models"][m]["value"].get<double>();
        EXPECT_NEAR(one["models"][m]["value"].get<double>(), value, tolerance(DType::f32, 16 * 96) * (1 + value))
            << one["metric"];
      }
    }
    EXPECT_EQ(texts_of(items), expected_texts);
  }
}

TEST(Ranks, ServeAsOneDevice) {
  const Program program;
  const std::string model = make_text_model(program, true);
  int64_t alpha = 16;
  for (const char* name : {"poet", "second", "third"}) {  // adapters that differ in their scale
    const fs::path folder = program / "adapters" / name;
    fs::create_directories(folder.parent_path());
    fs::copy(fs::path(llama("a")) / "lora", folder, fs::copy_options::recursive);
    Json config = Json::parse(read(folder / "adapter_config.json"));
    config["lora_alpha"] = alpha *= 4;
    write(folder / "adapter_config.json", config.dump());
  }
  const std::vector<std::string> serve = {"serve",
                                          "--model",
                                          model,
                                          "--dtype",
                                          "fp32",
                                          "--name",
                                          "tiny",
                                          "--port",
                                          "0",
                                          "--adapters",
                                          (program / "adapters").string(),
                                          "--adapter-slots",
                                          "1"};
  const auto answers = [&](const std::vector<std::string>& layout) {
    Process process(with(serve, layout));
    const int port = port_of(process);
    std::vector<std::string> texts;
    for (const char* name : {"tiny", "poet", "second", "tiny", "third"}) {
      const Json body = {{"model", name}, {"prompt", "Hello"}, {"temperature", 0}, {"max_tokens", 12}};
      const server::Answer answer = ask(port, "POST", "/v1/completions", body.dump());
      EXPECT_EQ(answer.status, 200) << answer.body;
      texts.push_back(Json::parse(answer.body)["choices"][0]["text"]);
    }
    process.kill(SIGTERM);
    EXPECT_EQ(process.wait(std::chrono::minutes(5)), 130) << process.result().error;
    return texts;
  };
  const std::vector<std::string> expected = answers({"--threads", "1"});
  EXPECT_EQ(std::set<std::string>(expected.begin(), expected.end()).size(), 4)
      << "a stale adapter would not be noticed";
  for (const std::vector<std::string>& layout : layouts) EXPECT_EQ(answers(layout), expected);
}

TEST(Ranks, ServingIsPlannedForAnotherMachine) {
  const Program program;
  write(program / "ours.yaml", "{name: ours, device: cuda, memory_gib: 64, devices: 8, host_memory_gib: 512}\n");
  write(program / "less.yaml", "{name: less, device: cuda, memory_gib: 40, devices: 8, host_memory_gib: 512}\n");
  const std::vector<std::string> serve = {"serve", "--model", std::string(test_data) + "/../../recipes/models/gpt-176b",
                                          "--tp",  "8",       "--dry-run"};
  const Result fits = program.run(with(serve, {"--machine", (program / "ours.yaml").string()}));
  EXPECT_EQ(fits.code, 0) << fits.error;
  EXPECT_NE(fits.output.find("each of ranks 0 to 7 on ours: weights 40.4 GiB"), std::string::npos) << fits.output;
  EXPECT_NE(fits.output.find("has no weights: planned for its shape"), std::string::npos) << fits.output;
  const Result too_much = program.run(with(serve, {"--machine", (program / "less.yaml").string()}));
  EXPECT_EQ(too_much.code, 4) << too_much.error;
  EXPECT_NE(too_much.output.find("does not fit: rank 0 needs"), std::string::npos) << too_much.output;
  program.refuses({"serve", "--model", llama("a"), "--machine", "h100"}, 2, "--machine needs --dry-run");
}

// What is planned is what the server takes.
TEST(Ranks, ThePlanOfServingIsWhatItTakes) {
  const Program program;
  const std::vector<std::string> serve = {"serve",     "--model", make_text_model(program, false),
                                          "--dtype",   "fp32",    "--port",
                                          "0",         "--tp",    "2",
                                          "--threads", "2",       "--context",
                                          "64"};
  const Result planned = program.run(with(serve, {"--dry-run"}));
  EXPECT_EQ(planned.code, 0) << planned.error;
  Process process(serve);
  ASSERT_NE(port_of(process), 0);
  const std::string said = process.result().error;
  const size_t begin = said.find("memory on cpu: ") + 15, end = said.find(", CPU workspace", begin);
  ASSERT_LT(end, said.size()) << said;
  EXPECT_NE(planned.output.find("each of ranks 0 to 1 on cpu: " + said.substr(begin, end - begin)), std::string::npos)
      << planned.output << said;
}

TEST(Ranks, ErrorsNameTheFault) {
  const Program program;
  const std::vector<std::string> score = {"score", "--model", llama("a"), "--ids", "1,5"};
  program.refuses({"serve", "--model", llama("a"), "--tp", "0", "--dry-run"}, 2, "both must be at least 1");
  program.refuses({"serve", "--model", llama("a"), "--compute", "fast", "--dry-run"}, 2,
                  "--compute 'fast' is not known");
  program.refuses({"serve", "--model", llama("a"), "--tp", "2", "--rank-timeout", "30"}, 2, "above --drain-seconds");
  program.refuses({"serve", "--model", llama("a"), "--rank-timeout", "60"}, 2, "no effect without --tp or --pp");
  program.refuses(with(score, {"--tp", "0"}), 2, "--tp 0 and --pp 1; both must be at least 1");
  program.refuses(with(score, {"--tp", "3", "--threads", "3"}), 2,
                  "tp is 3, which does not divide the model's 4 attention heads");
  program.refuses(with(score, {"--pp", "3", "--threads", "3"}), 2, "the model has 2 blocks, fewer than pp x chunks, 3");
  program.refuses(with(score, {"--tp", "2", "--threads", "1"}), 2, "less than the number of ranks, 2");
  program.refuses(with(score, {"--tp", "2", "--device", "sim32,sim32,sim32"}), 2, "lists 3 devices for 2 ranks");
}

}  // namespace
}  // namespace ingot::e2e
