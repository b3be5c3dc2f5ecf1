// Shared by the engine's tests: a small model, an engine for it, and the collected outputs of requests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "infer/engine.h"
#include "tests/infer/small_model.h"

namespace ingot::infer {

struct Answer {
  std::vector<SampledToken> tokens;
  std::vector<SampledToken> prompt;  // log-probabilities of the prompt's tokens
  std::optional<FinishReason> finish;
  std::string error;  // message and kind when finish is FinishReason::failed
  ErrorKind kind = ErrorKind::internal;
  std::vector<int32_t> ids() const { return ids_of(tokens); }
};

// Runs until no request is left, or for `steps` steps.
inline void run(Engine& engine, std::map<int64_t, Answer>& answers, int64_t steps = 1 << 20) {
  for (int64_t step = 0; step < steps && !engine.idle(); ++step) {
    for (const Output& output : engine.step()) {
      Answer& answer = answers[output.request];
      EXPECT_FALSE(answer.finish) << "an output after the last one";
      EXPECT_TRUE(answer.tokens.empty() || output.prompt.empty()) << "prompt log-probabilities after generated tokens";
      answer.prompt.insert(answer.prompt.end(), output.prompt.begin(), output.prompt.end());
      if (output.token) answer.tokens.push_back(*output.token);
      answer.finish = output.finish;
      answer.error = output.error;
      answer.kind = output.kind;
    }
  }
}

// GetParam(): the model's shape.
class EngineTest : public testing::TestWithParam<std::string> {
 protected:
  explicit EngineTest(StorageType matrices = StorageType::f32) : small_(GetParam(), matrices) {}

  SmallModel small_;

  static EngineSettings settings(int64_t sequences, int64_t batch_tokens, int64_t page_tokens, int64_t pages = 0) {
    EngineSettings s;
    s.activation = DType::f32;
    s.context = context;
    s.sequences = sequences;
    s.batch_tokens = batch_tokens;
    s.page_tokens = page_tokens;
    s.pages = pages;
    s.adapter_rank = 8;
    return s;
  }
  Engine engine(const EngineSettings& s) {
    return Engine(small_.device, small_.registry, small_.threads, *small_.model, s);
  }
  static Request request(std::vector<int32_t> prompt, int64_t max_tokens, const nn::Adapter* adapter = nullptr) {
    Request r;
    r.prompt = std::move(prompt);
    r.max_tokens = max_tokens;
    r.adapter = shared_adapter(adapter);
    return r;
  }
  // Submits all requests to one engine. Returns the answers in the order of `requests`.
  std::vector<Answer> answers(const EngineSettings& s, const std::vector<Request>& requests) {
    Engine e = engine(s);
    std::vector<int64_t> names;
    for (const Request& r : requests) names.push_back(e.submit(r));
    std::map<int64_t, Answer> by_name;
    run(e, by_name);
    std::vector<Answer> all;
    for (int64_t name : names) all.push_back(by_name[name]);
    return all;
  }
  Answer answer(const EngineSettings& s, const Request& r) { return answers(s, {r}).front(); }

  static constexpr int64_t context = 48;
};

}  // namespace ingot::infer
