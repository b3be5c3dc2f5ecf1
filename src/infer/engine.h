// The inference engine: requests in, tokens out, all of them in one flat batch a step over a paged KV cache.
//
// One thread owns an Engine. Text, JSON and HTTP stay outside: requests and results are token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "infer/sampler.h"
#include "models/model.h"
#include "ops/registry.h"

namespace ingot {
class ThreadPool;
}

namespace ingot::infer {

struct EngineSettings {
  DType activation = DType::bf16;  // f32, bf16 or f16; the cache's type too
  int64_t context = 0;             // most tokens of a sequence, prompt and output; at most the model's; 0: the model's
  int64_t batch_tokens = 512;      // most tokens computed in a step
  int64_t sequences = 1;           // most running at once
  int64_t page_tokens = 16;
  int64_t pages = 0;         // of the KV cache; 0: enough for `sequences` full contexts
  int64_t adapter_rank = 0;  // the largest that any request's adapter will have
  bool decoded = false;      // weights are stored in another type than `activation`
};

// Bytes that an engine allocates, by kind.
struct EngineBytes {
  size_t kv = 0;
  size_t scratch = 0;
  size_t batch = 0;
};
EngineBytes engine_bytes(const spec::ModelSpec& model, const EngineSettings& settings, int threads);

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  int64_t max_tokens = 0;       // at least 1
  Sampling sampling;
  std::vector<int32_t> stop_ids;         // the output ends before any of these
  const nn::Adapter* adapter = nullptr;  // outlives the request; null: the base model
};

enum class Finish { stop, length, cancelled };  // a stop id; max_tokens or the context; cancel()
const char* name(Finish finish);                // OpenAI's words: "stop", "length", "cancelled"

// A token of a request, or its end.
struct Output {
  int64_t request = 0;
  std::optional<Choice> token;   // absent at the end when a stop id was chosen, or it was cancelled
  std::optional<Finish> finish;  // present at the request's last output
};

class Engine {
 public:
  // Takes all memory it will ever use. ErrorKind::resource when that cannot be had, usage for settings that contradict.
  Engine(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::Model& model,
         EngineSettings settings);
  ~Engine();

  // Queues a request and names it. ErrorKind::usage when the prompt is empty, has ids outside the vocabulary, or is too
  // long for the context, saying by how much, and when the adapter's rank is above EngineSettings::adapter_rank.
  int64_t submit(Request request);
  // Ends it: its last output comes with the next step.
  void cancel(int64_t request);

  // Runs one batch. What it gave, in the order of arrival; empty when no request is left.
  std::vector<Output> step();

  bool idle() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::infer
