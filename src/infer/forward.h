// One batch through the model: from pieces of sequences to logits. Owns the memory that a batch takes on the device.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "infer/engine.h"
#include "tensor/staging.h"

namespace ingot::infer {

// Tokens ids[begin .. end) of a sequence; its earlier ones are in the cache.
struct ForwardPiece {
  std::span<const int32_t> ids;    // all that are known
  std::span<const int32_t> table;  // its pages
  int64_t begin = 0;
  int64_t end = 0;
  const nn::Adapter* adapter = nullptr;
  bool logits = false;  // of its last token
  bool states = false;  // the final norm's output of all its tokens
};

struct ForwardResult {
  std::span<const float> logits;                // [R, V] of the pieces that asked, in their order
  std::vector<std::vector<double>> state_sums;  // [H] for every piece that asked: its rows added up in double
};

// The settings with the model's context where none was given. ErrorKind::usage for ones that contradict.
EngineSettings checked(EngineSettings settings, const spec::ModelSpec& model);
int64_t num_pages(const EngineSettings& settings);

class Forward {
 public:
  Forward(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::Model& model,
          const EngineSettings& settings);

  // At most EngineSettings::batch_tokens tokens. The result is valid until the next call.
  ForwardResult run(std::span<const ForwardPiece> pieces);

 private:
  // A batch of one token of each of `rows` sequences, which launches the same from step to step: what changes, token
  // ids, positions and pages, is in tensors. The first such batch runs as any other (and loads what it needs), the
  // second is recorded, and from then on it is run again.
  struct Decoding {
    int64_t rows = 0;
    std::vector<uintptr_t> adapters;
    std::unique_ptr<Replay> replay;
  };
  static constexpr size_t most_decodings = 16;

  size_t place_of(const Tensor& tensor) const;
  int32_t* on_host(const Tensor& tensor) const;
  // Calls `work`, or runs again what it did before.
  void decode(int64_t rows, const std::vector<nn::AdapterSegment>& adapters, FunctionRef<void()> work);
  int64_t describe(std::span<const ForwardPiece> pieces);
  std::vector<double> sum_of_rows(int64_t begin, int64_t end);

  Device& device_;
  const models::Model& model_;
  EngineSettings settings_;
  Arena scratch_, kv_, batch_;
  ops::Context context_;
  nn::KvCache cache_;
  Tensor ids_, positions_, slots_, offsets_, lengths_, tables_;  // of the largest batch
  Tensor normed_, chosen_, logits_;
  HostBuffer up_, down_;  // of ids .. tables; of logits
  std::unique_ptr<Event> computed_;
  std::deque<Decoding> decodings_;  // the one used last first
};

}  // namespace ingot::infer
