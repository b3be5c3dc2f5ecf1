// Evaluates a model without training: losses of packed sequences, log-likelihoods of choices, and generated answers.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/packing.h"
#include "eval/results.h"
#include "infer/log_likelihood_scorer.h"
#include "runtime/session.h"

namespace ingot::eval {

// A model to evaluate: the model of a session, with or without an adapter.
struct EvaluatedModel {
  std::string name;
  runtime::Session* session = nullptr;
  const nn::Adapter* adapter = nullptr;
};

class Evaluation {
 public:
  // Allocates all its memory: up to `micro` sequences of `sequence_length` tokens are computed together.
  Evaluation(runtime::Session& session, int64_t sequence_length, int64_t micro);

  // At most `micro` sequences. Returns one loss for every sub-sequence that has loss tokens, in order; sums are in
  // double.
  std::vector<eval::SequenceLoss> run(std::span<const data::PackedSequence> sequences, const nn::Adapter* adapter);

 private:
  runtime::Session& session_;
  Arena batch_;
  Arena scratch_;
  Arena hidden_;
};

// The log-likelihood of each item's continuations, on every rank of the session. `done` receives the number of finished
// items.
std::vector<std::vector<double>> choice_logprobs(const EvaluatedModel& evaluated,
                                                 std::span<const infer::LogLikelihoodRequest> items,
                                                 const std::function<void(int64_t)>& done);

// A prompt to be answered greedily.
struct Question {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
  std::vector<std::string> stop;
};

// The text of each answer, up to a stop string or an end-of-text token. Several are generated concurrently. Called on
// the session's leading rank, while the others follow its engine (infer/follower.h). Errors: those of infer::Engine.
std::vector<std::string> generate_answers(const EvaluatedModel& evaluated, std::span<const Question> questions,
                                          const std::function<void(int64_t)>& done);

}  // namespace ingot::eval
