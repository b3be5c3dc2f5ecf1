// The inference engine: requests in, tokens out, all of them in one flat batch a step over a paged KV cache.
//
// One thread owns an Engine. Text, JSON and HTTP stay outside: requests and results are token ids.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "infer/host_adapter.h"
#include "infer/sampler.h"
#include "infer/token_mask.h"
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
  int64_t pages = 0;          // of the KV cache; 0: enough for `sequences` full contexts
  int64_t adapter_rank = 0;   // the largest that any request's adapter will have
  bool decoded = false;       // weights are stored in another type than `activation`
  int64_t adapter_slots = 0;  // adapters on the device at once; 0: as many as sequences
  // A row's logits have the same bits whoever else is in the batch and whatever piece of a prompt it is computed in, so
  // that a text does not depend on company. On CPUs alone; GPUs sum few rows in an order of their own.
  bool same_bits = true;
  // Keys and values of full pages are kept for prompts that begin alike. Only where weights never change.
  bool prefix_cache = false;
  // Most tokens a step that are guessed to follow, as what followed the same words earlier in the text, and checked
  // together; what is said does not change. 0: none.
  int64_t guesses = 0;
  // What the model says of a prompt's tokens (Request::score_prompt) is computed for so many of them at once, or for as
  // many as choices are made for in a step if these are more: memory for logits against time. Changes no number.
  int64_t scored_at_once = 1;
};

// Bytes that an engine allocates, by kind.
struct EngineBytes {
  size_t kv = 0;
  size_t scratch = 0;
  size_t batch = 0;
  size_t adapters = 0;
};
// `host_visible`: of the device.
EngineBytes engine_bytes(const spec::ModelSpec& model, const EngineSettings& settings, int threads, bool host_visible);

// Token ids that copies share.
class PromptIds {
 public:
  PromptIds() = default;
  PromptIds(std::vector<int32_t> ids) : ids_(std::make_shared<const std::vector<int32_t>>(std::move(ids))) {}

  const std::vector<int32_t>& get() const {
    static const std::vector<int32_t> none;
    return ids_ ? *ids_ : none;
  }
  int64_t size() const { return std::ssize(get()); }
  bool same_as(const PromptIds& other) const { return ids_ == other.ids_; }  // they share their ids

 private:
  std::shared_ptr<const std::vector<int32_t>> ids_;
};

struct Request {
  PromptIds prompt;        // at least one token
  int64_t max_tokens = 0;  // 0: the prompt is computed and no token made; of no meaning with `embed`
  Sampling sampling;
  std::vector<int32_t> stop_ids;               // the output ends before any of these
  std::shared_ptr<const HostAdapter> adapter;  // null: the base model
  std::shared_ptr<TokenMask> mask;             // null: every token may come; no other request has the same
  int priority = 0;  // of one owner's requests the higher first; a lower one gives its place, its pages and its
                     // adapter's slot up
  std::optional<std::chrono::steady_clock::time_point> deadline;  // it ends at the first step after this
  bool embed = false;                                             // no token is made: the prompt's states are wanted
  // What the model says of the prompt's tokens is wanted (Output::prompt, with Sampling::top_logprobs of the
  // likeliest); not with `embed`. All of the prompt is computed then, whatever the prefix cache has.
  bool score_prompt = false;
  uint64_t owner = 0;       // whose it is, for Service's shares and the engine's turns; 0: nobody's
  uint64_t cache_salt = 0;  // the prefix cache is shared by requests of the same salt and adapter only
};

enum class Finish {
  stop,       // a stop id, or the mask allows nothing more
  length,     // max_tokens or the context
  cancelled,  // cancel()
  deadline,   // Request::deadline
  failed,     // Output::error says why; other requests are unharmed
};
const char* name(Finish finish);  // OpenAI's words where it has them: "stop", "length", "cancelled", "deadline", ...

// A token of a request, or log-probabilities of its prompt, or its end.
struct Output {
  int64_t request = 0;
  std::optional<Choice> token;           // absent at the end when a stop id was chosen, or something ended it
  std::optional<Finish> finish;          // present at the request's last output
  std::optional<Choice> ended_by;        // the stop id that was chosen at the end
  std::string error;                     // of Finish::failed
  ErrorKind kind = ErrorKind::internal;  // of `error`: usage (of a mask beyond its limits, too) and the like
                                         // are the request's fault; unavailable: another
                                         // engine, or this one later, may do it; corrupt: what the model or the
                                         // adapter computes is not finite
  std::string file;  // of Finish::failed, by Service: the model's file that is not what it was; else empty
  // Of a request that asked for it, before its first token: those tokens of the prompt that come next, from the second
  // on, and what the model says of them behind what is before them. A prompt that is filled in pieces comes in pieces.
  std::vector<Choice> prompt;
  std::vector<float> embedding;  // [hidden] of a request that asked for it: the mean of the final norm's output over
                                 // the prompt
  int64_t cached_tokens = 0;     // at the request's first output: tokens of its prompt that were in the prefix cache
};

// What an engine holds and has done, for metrics.
struct EngineCounts {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t free_pages = 0;
  int64_t used_pages = 0;
  int64_t preemptions = 0;      // sequences that gave their pages back, since the start
  int64_t prefix_lookups = 0;   // prompt tokens that were looked for in the prefix cache
  int64_t prefix_hits = 0;      // and found there
  int64_t adapter_uploads = 0;  // adapters that were given a place on the device
  int64_t guessed = 0;          // tokens that were guessed
  int64_t guessed_right = 0;
  double device_seconds = 0;  // of all steps, spent on the model's and the choices' ops; the rest is the engine's own
};

class Engine {
 public:
  // Takes all memory it will ever use. ErrorKind::resource when that cannot be had, usage for settings that contradict.
  Engine(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::Model& model,
         EngineSettings settings);
  ~Engine();

  // Queues a request and names it. ErrorKind::usage when the prompt is empty, has ids outside the vocabulary, or is too
  // long for the context, saying by how much, when the adapter's rank is above EngineSettings::adapter_rank, and for
  // sampling that `check` refuses.
  int64_t submit(Request request);
  // Ends it: its last output comes with the next step.
  void cancel(int64_t request) noexcept;

  // Runs one batch: what it gave, which may be nothing while prompts are filled. Requests that were cancelled or whose
  // deadline has passed end before anything is computed. Does nothing when idle.
  std::vector<Output> step();

  bool idle() const;
  EngineCounts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::infer
