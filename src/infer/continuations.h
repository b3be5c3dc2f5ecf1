// How likely a model finds several continuations of one context. The context is computed once for all of them.
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

struct Continuations {
  std::vector<int32_t> context;                     // at least one token
  std::vector<std::vector<int32_t>> continuations;  // at least one, each of at least one token
};

struct ContinuationSettings {
  DType activation = DType::bf16;  // f32, bf16 or f16; the cache's type too
  int64_t batch_tokens = 1024;     // computed at once; more when one item needs more
  int64_t page_tokens = 16;
  int64_t adapter_rank = 0;
  bool decoded = false;  // weights are stored in another type than `activation`
};

class ContinuationScorer {
 public:
  // Takes memory for any of `items`, which it is then asked for. ErrorKind::usage for an item without context or
  // continuations, one that is longer than the model's context (a continuation's last token is not fed), and ids
  // outside the vocabulary; resource when there is not enough memory.
  ContinuationScorer(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::Model& model,
                     const ContinuationSettings& settings, std::span<const Continuations> items);

  // For every item and continuation the sum of ln p(token | what is before it), in double. `done` is told how many
  // items are finished, from time to time.
  std::vector<std::vector<double>> score(std::span<const Continuations> items, const nn::Adapter* adapter,
                                         const std::function<void(int64_t)>& done);

 private:
  // What a batch holds, on its way to the device.
  struct Batch {
    std::vector<int32_t> ids, positions, slots, offsets{0}, lengths, tables;
    std::vector<int64_t> asked;    // rows whose logits are wanted
    std::vector<int32_t> targets;  // [asked]: the token that comes next
    int64_t pages = 0;             // in use
  };
  struct Needs {
    int64_t tokens = 0, sequences = 0, asked = 0, pages = 0;
    void operator+=(const Needs& other);
    bool within(const Needs& limit) const;
  };

  int64_t shared_tokens(const Continuations& item) const;
  Needs needs(const Continuations& item) const;
  void add(Batch& batch, const Continuations& item) const;
  void add_sequence(Batch& batch, std::span<const int32_t> ids, int64_t first, std::vector<int32_t> table) const;
  std::vector<double> compute(const Batch& batch, const nn::Adapter* adapter);  // [asked]

  Device& device_;
  ThreadPool& threads_;
  const models::Model& model_;
  ContinuationSettings settings_;
  Needs limit_;
  int64_t most_pages_ = 0;  // of a sequence
  int64_t logit_rows_ = 0;  // computed at once
  Arena scratch_, kv_, batch_arena_;
  ops::Context context_;
  nn::KvCache cache_;
};

}  // namespace ingot::infer
