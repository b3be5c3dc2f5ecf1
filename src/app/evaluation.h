// What a model makes of data and questions, without training: losses of packed sequences, likelihoods of choices, and
// generated answers.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "app/eval/results.h"
#include "app/session.h"
#include "data/packing.h"
#include "infer/continuations.h"

namespace ingot::app {

// A model that is measured: a session's, with or without an adapter.
struct Contestant {
  std::string name;
  Session* session = nullptr;
  const nn::Adapter* adapter = nullptr;
};

class Evaluation {
 public:
  // Takes its memory at once: `micro` sequences of `sequence_length` tokens are computed together.
  Evaluation(Session& session, int64_t sequence_length, int64_t micro);

  // At most `micro` sequences. One loss for every sub-sequence with counted tokens, in their order; sums in double.
  std::vector<eval::PieceLoss> run(std::span<const data::PackedSequence> sequences, const nn::Adapter* adapter);

 private:
  Session& session_;
  Arena batch_;
  Arena scratch_;
};

// ln p of every item's continuations. `done` is told how many items are finished.
std::vector<std::vector<double>> score_choices(const Contestant& contestant,
                                               std::span<const infer::Continuations> items,
                                               const std::function<void(int64_t)>& done);

// A prompt to be answered greedily.
struct Question {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
  std::vector<std::string> stop;
};

// The text of each answer, up to a stop string or an end-of-text token. Several are generated at a time.
// Errors: those of infer::Engine.
std::vector<std::string> answer_all(const Contestant& contestant, std::span<const Question> questions,
                                    const std::function<void(int64_t)>& done);

}  // namespace ingot::app
