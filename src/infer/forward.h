// One batch through the model: from pieces of sequences to logits. Owns the memory that a batch takes on the device.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "infer/adapter_slots.h"
#include "infer/chooser.h"
#include "infer/engine.h"
#include "tensor/staging.h"

namespace ingot::infer {

// Tokens ids[begin .. end) of a sequence; its earlier ones are in the cache.
struct ForwardPiece {
  std::span<const int32_t> ids;    // all that are known
  std::span<const int32_t> table;  // its pages
  int64_t begin = 0;
  int64_t end = 0;
  int64_t slot = -1;    // its adapter's (AdapterSlots)
  int64_t wanted = 0;   // so many of its last tokens are followed by a choice
  bool states = false;  // the final norm's output of all its tokens is wanted
  // Of ids[known_begin .. known_end), which are in the piece or right behind it, but not its first, it is wanted what
  // the model says of them.
  int64_t known_begin = 0;
  int64_t known_end = 0;
  const Sampling* sampling = nullptr;  // of these: Sampling::top_logprobs; null where there are none
};

struct ForwardResult {
  std::vector<Chosen> chosen;                   // of the pieces that want choices, in their order
  std::vector<Chosen> known;                    // of tokens that are known, in the order of pieces
  std::vector<std::vector<double>> state_sums;  // [H] for every piece that asked: its rows added up in double
};

// The settings with the model's context where none was given. ErrorKind::usage for ones that contradict.
EngineSettings checked(EngineSettings settings, const spec::ModelSpec& model);
// ErrorKind::usage for a context that is not 1 to the model's, for counts below 1 or beyond what sizes can be computed
// of.
void check_counts(const EngineSettings& settings, const spec::ModelSpec& model);
int64_t num_pages(const EngineSettings& settings);

class Forward {
 public:
  Forward(Device& device, const ops::Registry& registry, ThreadPool& threads, const models::Model& model,
          const EngineSettings& settings);

  // At most EngineSettings::batch_tokens tokens. The result is valid until the next call.
  // `wanted` is called once the device has the model's work, when a choice is wanted, and says what of each.
  ForwardResult run(std::span<const ForwardPiece> pieces, FunctionRef<std::vector<Wanted>()> wanted);

  std::span<uint32_t> mask(int64_t row) { return chooser_->mask(row); }
  AdapterSlots* adapters() { return adapters_ ? &*adapters_ : nullptr; }  // null: made for none
  double device_seconds() const { return device_seconds_; }               // until now, of what `run` waits for

 private:
  // A batch of one token of each of `rows` sequences, which launches the same from step to step: what changes, token
  // ids, positions and pages, is in tensors. The first such batch runs as any other (and loads what it needs), the
  // second is recorded, and from then on it is run again.
  struct Decoding {
    int64_t rows = 0;
    std::vector<int64_t> ranks;  // nn::LoraBatch::ranks, empty without adapters
    std::unique_ptr<Replay> replay;
  };
  static constexpr size_t most_decodings = 16;

  size_t place_of(const Tensor& tensor) const;
  int32_t* on_host(const Tensor& tensor) const;
  // Calls `work`, or runs again what it did before.
  void decode(int64_t rows, const std::vector<int64_t>& ranks, FunctionRef<void()> work);
  int64_t describe(std::span<const ForwardPiece> pieces);
  bool give_adapters(std::span<const ForwardPiece> pieces);
  void compute_logits(const nn::TokenBatch& flat, bool adapted, std::span<const int64_t> asked, bool every_row);
  std::vector<Chosen> tell_known(std::span<const ForwardPiece> pieces, const nn::TokenBatch& flat, bool adapted);
  std::vector<double> sum_of_rows(int64_t begin, int64_t end);

  Device& device_;
  const models::Model& model_;
  EngineSettings settings_;
  Arena scratch_, kv_, batch_, adapter_arena_;
  ops::Context context_;
  nn::KvCache cache_;
  // Of the largest batch; with the adapter's slot of each token, and of each row whose logits are wanted: first those
  // that choices are made by, then those of known tokens.
  Tensor ids_, positions_, slots_, offsets_, adapter_slots_, head_slots_, lengths_, tables_;
  Tensor normed_, chosen_, logits_;
  HostBuffer up_;  // of ids .. tables
  std::unique_ptr<Event> computed_;
  std::optional<Chooser> chooser_;
  std::optional<AdapterSlots> adapters_;
  nn::LoraBatch lora_, head_lora_;
  bool any_rows_ = false;
  double device_seconds_ = 0;
  std::deque<Decoding> decodings_;  // the one used last first
};

}  // namespace ingot::infer
