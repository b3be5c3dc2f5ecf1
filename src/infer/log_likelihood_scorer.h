// Log-likelihood scorer: log-probabilities of several continuations of a context. The context is computed once for all
// of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/model.h"
#include "ops/registry.h"

namespace ingot {
class ThreadPool;
}

namespace ingot::infer {

struct LogLikelihoodRequest {
  std::vector<int32_t> context;                     // at least one token
  std::vector<std::vector<int32_t>> continuations;  // at least one, each of at least one token
};

struct LogLikelihoodSettings {
  DType activation = DType::bf16;  // f32, bf16 or f16; also the dtype of the KV cache
  int64_t batch_tokens = 1024;     // max tokens of a batch; more if one item needs more
  int64_t page_tokens = 16;
  int64_t adapter_rank = 0;
  bool decoded = false;           // weights are stored in another dtype than `activation`
  bool int8_activations = false;  // as in nn::Pass; CPU only
};

class LogLikelihoodScorer {
 public:
  // Of a model that ranks share, all score the same items. Allocates memory for any of `items`, the only ones
  // that may be scored. ErrorKind::usage for an item without context or continuations, for one longer than the model's
  // context (a continuation's last token is not an input), and for ids outside the vocabulary; resource when there is
  // not enough memory.
  LogLikelihoodScorer(Device& device, const ops::Registry& registry, ThreadPool& threads,
                      const models::InferenceModel& model, const LogLikelihoodSettings& settings,
                      std::span<const LogLikelihoodRequest> items);

  // For every item and continuation: the sum of ln p(token | tokens before it), in double. `done` is called after each
  // batch with the number of finished items.
  std::vector<std::vector<double>> score(std::span<const LogLikelihoodRequest> items, const nn::Adapter* adapter,
                                         const std::function<void(int64_t)>& done);

 private:
  // A batch on the host.
  struct Batch {
    std::vector<int32_t> ids, positions, slots, offsets{0}, lengths, tables;
    std::vector<int64_t> logit_rows;  // rows whose logits are needed
    std::vector<int32_t> targets;     // [asked]: the next token, which is scored
    int64_t pages = 0;                // in use
  };
  struct Needs {
    int64_t tokens = 0, sequences = 0, logit_rows = 0, pages = 0;
    void operator+=(const Needs& other);
    bool within(const Needs& limit) const;
  };

  int64_t shared_tokens(const LogLikelihoodRequest& item) const;
  Needs needs(const LogLikelihoodRequest& item) const;
  void add(Batch& batch, const LogLikelihoodRequest& item) const;
  void add_sequence(Batch& batch, std::span<const int32_t> ids, int64_t first, std::vector<int32_t> table) const;
  std::vector<double> compute(const Batch& batch, const nn::Adapter* adapter);  // [asked]

  Device& device_;
  ThreadPool& threads_;
  const models::InferenceModel& model_;
  LogLikelihoodSettings settings_;
  Needs limit_;
  int64_t max_pages_ = 0;   // per sequence
  int64_t logit_rows_ = 0;  // rows of logits computed at once
  Arena scratch_, kv_, batch_arena_;
  ops::Context context_;
  nn::KvCache cache_;
};

}  // namespace ingot::infer
