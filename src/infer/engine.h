// The inference engine: takes requests and returns tokens. Each step runs one flat batch of tokens (continuous
// batching) over a paged KV cache.
//
// One thread owns an Engine. Requests and results are token ids; text, JSON and HTTP are handled outside.
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
  DType activation = DType::bf16;  // f32, bf16 or f16; also the dtype of the KV cache
  int64_t context = 0;  // max tokens of a sequence, prompt and output; at most the model's context; 0: the model's
  int64_t batch_tokens = 512;  // max tokens computed in a step
  int64_t sequences = 1;       // max running sequences
  int64_t page_tokens = 16;
  int64_t pages = 0;              // KV cache pages; 0: enough for `sequences` full contexts
  int64_t adapter_rank = 0;       // max rank of any request's adapter; 0: no adapters
  spec::ModelShard shard;         // which part of its model this rank has; the engine sets it
  bool decoded = false;           // weights are stored in another dtype than `activation`
  bool int8_activations = false;  // as in nn::Pass; CPU only
  int64_t adapter_slots = 0;      // max adapters on the device; 0: as many as sequences
  // Row-invariant: the bits of a row's logits, and so a request's text, do not depend on the other requests in the
  // batch or on how the prompt was chunked. CPU only: GPU kernels sum small batches in another order, and vendors'
  // libraries choose algorithms by the number of rows.
  bool row_invariant = true;
  // Prefix cache: full pages stay cached for prompts with the same beginning. Only valid if weights never change.
  bool prefix_cache = false;
  // Speculative decoding by prompt lookup: max draft tokens of a sequence per step. Drafts are what followed the same
  // words earlier in the text, and are verified in one batch; the output does not change. 0: off.
  int64_t draft_tokens = 0;
  // Log-probabilities of prompt tokens (Request::prompt_logprobs) are computed for this many tokens at once, or for as
  // many as are sampled in a step if that is more. Trades memory for logits against time; results do not change.
  int64_t scored_at_once = 1;
  // The model's work of a step is queued before the tokens of the step before it are read, which the device inserts
  // itself. Texts do not change. Only on devices that work while the host goes on, without draft tokens, and where no
  // ranks share the model; elsewhere a step is read first.
  bool async_scheduling = true;
};

// Bytes that an engine allocates, by kind.
struct EngineBytes {
  size_t kv = 0;
  size_t scratch = 0;
  size_t batch = 0;
  size_t adapters = 0;
  size_t library_workspace = 0;  // of vendors' libraries on a GPU; all engines of a device share it
};
// `host_visible`: Device::host_visible() of the engine's device.
EngineBytes engine_bytes(const spec::ModelSpec& whole, const EngineSettings& settings, int threads, bool host_visible);

// Token ids that are shared between copies.
class PromptIds {
 public:
  PromptIds() = default;
  PromptIds(std::vector<int32_t> ids) : ids_(std::make_shared<const std::vector<int32_t>>(std::move(ids))) {}

  const std::vector<int32_t>& get() const {
    static const std::vector<int32_t> none;
    return ids_ ? *ids_ : none;
  }
  int64_t size() const { return std::ssize(get()); }
  bool same_as(const PromptIds& other) const { return ids_ == other.ids_; }  // whether both are copies of one object

 private:
  std::shared_ptr<const std::vector<int32_t>> ids_;
};

struct Request {
  PromptIds prompt;        // at least one token
  int64_t max_tokens = 0;  // 0: computes the prompt and generates nothing; ignored with `embed`
  SamplingParams sampling;
  std::vector<int32_t> stop_ids;               // the output ends before the first of these
  std::shared_ptr<const HostAdapter> adapter;  // null: the base model
  std::shared_ptr<TokenMask> mask;  // guided decoding; null: every token is allowed; not shared with another request
  int priority = 0;  // higher first among requests of one owner; a lower one gives up its batch slot, its pages and its
                     // adapter slot
  std::optional<std::chrono::steady_clock::time_point> deadline;  // the request ends at the first step after this
  bool embed = false;  // generates no token and returns the mean of the prompt's final states (Output::embedding)
  // Returns the log-probabilities of the prompt's tokens (Output::prompt, each with the SamplingParams::top_logprobs
  // most likely tokens); not with `embed`. The whole prompt is computed then, without the prefix cache.
  bool prompt_logprobs = false;
  uint64_t owner = 0;       // tenant, for Service's limits and the scheduler's fair shares; 0: no owner
  uint64_t cache_salt = 0;  // requests share cached pages only with requests of the same salt and adapter
};

enum class FinishReason {
  stop,       // a stop id was sampled, or the mask allows nothing more
  length,     // max_tokens or the context was reached
  cancelled,  // cancel()
  deadline,   // Request::deadline
  failed,     // Output::error says why; other requests are not affected
};
const char* name(FinishReason finish);  // OpenAI's finish_reason where it has one ("stop", "length"), else as above

// A token of a request, log-probabilities of its prompt, or its end.
struct Output {
  int64_t request = 0;
  std::optional<SampledToken> token;     // absent if a stop id was sampled or the request was ended
  std::optional<FinishReason> finish;    // set in the request's last output
  std::optional<SampledToken> ended_by;  // the stop id that was sampled at the end
  std::string error;                     // of FinishReason::failed
  ErrorKind kind = ErrorKind::internal;  // of `error`: usage and the like: the request is at fault (also for a mask
                                         // beyond its limits); unavailable: another engine, or this one later, may
                                         // succeed; corrupt: what the model or the adapter computes is not finite
  std::string file;  // of FinishReason::failed, set by Service: the model file that has changed or was lost; else empty
  // With Request::prompt_logprobs, before the first token: the log-probabilities of the next prompt tokens, each given
  // the tokens before it, starting with the prompt's second token. A chunked prefill returns them chunk by chunk.
  std::vector<SampledToken> prompt;
  std::vector<float> embedding;  // [hidden], with Request::embed: the mean of the final norm's output over the prompt
  int64_t cached_tokens = 0;     // in the request's first output: prompt tokens that were in the prefix cache
};

// State and counters of an engine, for metrics.
struct EngineCounts {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t free_pages = 0;
  int64_t used_pages = 0;
  int64_t preemptions = 0;      // sequences that were preempted and lost their pages, since the start
  int64_t prefix_lookups = 0;   // prompt tokens looked up in the prefix cache
  int64_t prefix_hits = 0;      // and found there
  int64_t adapter_uploads = 0;  // adapters placed in a slot on the device
  int64_t drafted_tokens = 0;   // draft tokens that were verified
  int64_t accepted_tokens = 0;
  double device_seconds = 0;  // of the host in the ops of the model and of sampling and waiting for them, over all
                              // steps; the rest is overhead, which a GPU can hide (async_scheduling)
};

class Engine {
 public:
  // Allocates all memory that it will ever use. Of a model that `ranks` share (models/divided_model.h) this is rank 0,
  // and the others are in follow_engine() as long as it exists. ErrorKind::resource when there is not enough memory,
  // usage for contradictory settings.
  Engine(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::InferenceModel& model,
         EngineSettings settings, const comm::Group& ranks = {});
  ~Engine();

  // Queues a request and returns its id. ErrorKind::usage when the prompt is empty, has ids outside the vocabulary or
  // is too long for the context (with the numbers), when the adapter's rank is above EngineSettings::adapter_rank, for
  // contradictory fields, and for sampling settings that `check` refuses.
  int64_t submit(Request request);
  // Ends a request: its last output comes with the next step.
  void cancel(int64_t request) noexcept;

  // Returns the outputs of one batch; there may be none during prefill. With EngineSettings::async_scheduling the next
  // batch is queued meanwhile, so that a new request is in the batch after that. Requests that were cancelled or whose
  // deadline has passed end first; what a batch in flight computes for them is dropped. Does nothing when idle.
  std::vector<Output> step();

  bool idle() const;
  EngineCounts counts() const;

  // Other ranks wait for batches only as long as the group's time-out: call check_ranks() more often while idle.
  // Errors: the group's, when a rank has failed or does not answer.
  bool has_ranks() const;
  void check_ranks();

  // Calls `observer` around every op that following calls of `step` queue; null: none. Observed ops are not recorded on
  // the device. A batch that was queued before is not observed.
  void observe(ops::OpObserver* observer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::infer
