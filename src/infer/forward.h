// Runs one batch through the model: from chunks of sequences to sampled tokens. Owns the device memory of a batch.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "infer/adapter_slots.h"
#include "infer/engine.h"
#include "infer/engine_link.h"
#include "infer/token_sampler.h"
#include "tensor/staging.h"

namespace ingot::infer {

// Tokens ids[begin .. end) of a sequence; its earlier ones are in the KV cache.
struct ForwardChunk {
  // All known tokens of the sequence, then its draft tokens. -1 - r, below 0, is the token sampled for row r of the
  // batch before (of its ForwardBatch::sampled_rows), which need not be on the host.
  std::span<const int32_t> ids;
  std::span<const int32_t> table;  // its page table
  int64_t begin = 0;
  int64_t end = 0;
  int64_t slot = -1;    // its adapter slot (AdapterSlots), -1: none
  int64_t wanted = 0;   // number of its last tokens after each of which a token is sampled
  bool states = false;  // the final norm's output is needed for all its tokens
  // The log-probabilities of ids[known_begin .. known_end) are needed. They lie in [begin + 1, end + 1): a token is
  // scored by the row of the token before it.
  int64_t known_begin = 0;
  int64_t known_end = 0;
};

struct ForwardResult {
  std::vector<SampleResult> sampled;            // sampled tokens, in the order of the chunks that need them
  std::vector<SampleResult> known;              // scored known tokens, in the order of chunks
  std::vector<std::vector<double>> state_sums;  // [H] for every chunk with `states`: the sum of its rows, in double
};

// A batch from Forward::start to Forward::finish.
struct ForwardBatch {
  int64_t tokens = 0, chunks = 0;
  std::vector<int64_t> sampled_rows;                    // the rows whose logits are needed, to sample from
  std::vector<int64_t> known_rows;                      // and to score known tokens
  std::vector<std::pair<int64_t, int64_t>> state_rows;  // [begin, end) of every chunk with `states`
  bool continues = false;                               // some ids are those of tokens that the batch before sampled
  bool sampling = false;                                // the sampler has results for `finish`
  size_t staging = 0;                                   // its host copy, Forward::staging_
  ForwardResult result;                                 // what is known before `finish`

  // Whether its logits or states are read after sampling. Then `sample` must return before another batch starts.
  bool is_read_again() const { return !known_rows.empty() || !state_rows.empty(); }
};

// The settings, with the model's context where none was given. ErrorKind::usage for contradictory ones.
EngineSettings checked(EngineSettings settings, const spec::ModelSpec& model);
// ErrorKind::usage for a context outside 1 .. the model's, and for counts below 1 or too large to compute sizes from.
void check_counts(const EngineSettings& settings, const spec::ModelSpec& model);
int64_t num_pages(const EngineSettings& settings);

// Of a model that several ranks share, each of `ranks` has one. Rank 0 broadcasts every batch that it runs, and the
// others compute their shares of it.
class Forward {
 public:
  Forward(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::InferenceModel& model,
          const EngineSettings& settings, const comm::Group& ranks = {});

  // A batch is computed by three calls, which take batches in the same order:
  // - `start` queues the model's work for at most EngineSettings::batch_tokens tokens, up to the logits;
  // - `sample` queues the sampling: `wanted`, for every token that is sampled, `known`, for every known token that is
  //   scored, in the order of chunks. Not called for a batch that nobody needs any more;
  // - `finish` waits for the results, and for nothing that was queued later.
  // Where `runs_ahead`, another batch may be started between a batch's `sample` and `finish`, unless it
  // is_read_again().
  ForwardBatch start(std::span<const ForwardChunk> chunks);
  void sample(ForwardBatch& batch, std::span<const SampleRequest> wanted, std::span<const SampleRequest> known);
  ForwardResult finish(ForwardBatch& batch);
  // The device works while the host goes on, and no other ranks have to be sent the sampled tokens.
  bool runs_ahead() const { return staging_.size() > 1; }

  // On other ranks: this rank's share of a batch, and of an adapter, that rank 0 has sent.
  void follow_batch(std::span<const std::byte> message);
  void follow_adapter(std::span<const std::byte> message);

  void observe(ops::OpObserver* observer) { context_.watch = observer; }

  std::span<uint32_t> mask(int64_t row) { return sampler_->mask(row); }
  AdapterSlots* adapters() { return adapters_ ? &*adapters_ : nullptr; }  // null: no adapters
  // Total time in which the host queued the model's and the sampler's ops and waited for them.
  double device_seconds() const { return device_seconds_; }

 private:
  // A decode batch: one token of each of `rows` sequences. Its launches are the same in every step, as what changes
  // (token ids, positions and pages) is in tensors. The first such batch is run as any other (and loads what it needs),
  // the second is recorded, and later ones replay the recording.
  struct RecordedDecode {
    int64_t rows = 0;
    std::vector<int64_t> ranks;  // nn::LoraBatch::ranks; empty without adapters
    std::unique_ptr<RecordedGraph> replay;
  };
  static constexpr size_t max_recordings = 16;

  // The host copy of ids_ .. tables_ of a batch.
  struct Staging {
    PinnedBuffer memory;
    std::unique_ptr<Event> computed;  // the batch's model work is done
  };

  size_t staging_offset(const Tensor& tensor) const;
  size_t staged_bytes(const ForwardBatch& batch) const;
  int32_t* on_host(const Tensor& tensor) const;
  // Calls `work`, or replays its recording.
  void decode(int64_t rows, const std::vector<int64_t>& ranks, FunctionRef<void()> work);
  ForwardBatch fill_inputs(std::span<const ForwardChunk> chunks);
  void send(const ForwardBatch& batch) const;
  std::shared_ptr<const HostAdapter> share_adapter(int64_t slot, const std::shared_ptr<const HostAdapter>& adapter);
  void use_adapters(const ForwardBatch& batch);
  void compute(const ForwardBatch& batch);
  nn::Pass head_pass();
  Tensor logits_of(int64_t rows);  // of those rows, as compute_logits assigns them
  void compute_logits(std::span<const int64_t> logit_rows, bool every_row);
  void for_known(const ForwardBatch& batch, FunctionRef<void(int64_t first, int64_t end)> scored);
  std::vector<SampleResult> score_known(const ForwardBatch& batch, std::span<const SampleRequest> known);
  std::vector<double> sum_of_rows(int64_t begin, int64_t end);

  Device& device_;
  const models::InferenceModel& model_;
  EngineSettings settings_;
  EngineLink link_;
  Arena scratch_, kv_, batch_, adapter_arena_;
  ops::Context context_;
  nn::KvCache cache_;
  // Sized for the largest batch. adapter_slots_: the adapter slot of each token. head_slots_: of each row whose logits
  // are needed, first the rows to sample from, then the rows that score known tokens.
  Tensor ids_, positions_, slots_, offsets_, adapter_slots_, head_slots_, lengths_, tables_;
  Tensor normed_, selected_, logits_;
  Tensor arrivals_;               // ops::PagedLayout::arrivals; absent on a CPU
  std::vector<Staging> staging_;  // two where `runs_ahead`, used in turn
  size_t current_ = 0;            // that of the batch started last
  std::optional<TokenSampler> sampler_;
  std::optional<AdapterSlots> adapters_;
  nn::LoraBatch lora_, head_lora_;
  bool adapted_ = false;  // the batch uses adapters
  nn::TokenBatch flat_;   // of the batch
  bool row_invariant_ = false;
  double device_seconds_ = 0;
  std::deque<RecordedDecode> recordings_;  // most recently used first
};

}  // namespace ingot::infer
