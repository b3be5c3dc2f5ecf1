// An opened model, as used by every command that runs one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/load.h"
#include "checkpoint/text_assets.h"
#include "models/divided_model.h"
#include "runtime/runtime.h"

namespace ingot::runtime {

// Parses --dtype for inference. ErrorKind::usage for an unknown word.
DType activation_of(const std::string& dtype);

// The options --model, --adapter, --device, --dtype, --weights, --compute, --threads, --tp and --pp. A ModelRank is
// opened by --device, --threads, --tp and --pp.
struct ModelOptions {
  std::string model;
  std::optional<std::string> adapter;
  std::string device = "auto";
  std::string dtype = "bf16";
  std::string weights = "auto";
  std::string compute = "auto";
  std::optional<int64_t> threads;
  int64_t tp = 1, pp = 1;  // of the ranks that compute the model together
};

// Whether --compute asks for linear layers with int8 activations (ops/linear_int8.h). Errors: usage for an unknown word
// and for a device that is not the CPU.
bool asks_for_int8(const std::string& compute, const Device& device);
// ErrorKind::usage when no matrix of any rank is in q8_0 or q4_0. Collective.
void require_int8_weights(const WeightSet& weights, const comm::Group& ranks = {});

// What computes a model, or with others this rank's shard of it.
struct ModelRank {
  Runtime& runtime;
  models::ModelRanks ranks;
};

// Owns the weights and the adapter; to be used by one thread at a time.
class Session {
 public:
  // Errors: usage for an unknown option value, and for --compute int8 without such weights or on another device than
  // the CPU; unsupported for weight types that this build does not support, and for an adapter that replaces weights of
  // a model that ranks share; those of open_model, load_model, load_adapter and of spec::check for shards.
  Session(const ModelOptions& options, const ModelRank& rank);

  // Reads tokenizer, template and end-of-text ids on the first call.
  const checkpoint::TextAssets& text();
  // Errors: not_found when the model has no tokenizer.
  const text::Tokenizer& tokenizer();

  // The shape of a forward pass over `tokens` tokens of one sequence, with logits for `logit_rows` of them.
  models::PassShape shape(int64_t tokens, int64_t logit_rows) const;
  // A pass without a cache that computes as the options say.
  nn::Pass pass(ops::Context& context, const nn::TokenBatch& batch, std::vector<nn::AdapterSegment> adapters) const;
  // One segment over `tokens` rows when there is an adapter, else none.
  std::vector<nn::AdapterSegment> segments(int64_t tokens) const;

  // Whether this is the rank, of those that compute the model together, that reports.
  bool leads() const { return ranks.rank() == 0; }

  Runtime& runtime;
  comm::Group ranks;  // that compute the model together
  checkpoint::ModelSource source;
  DType activation;
  bool int8_activations;           // --compute int8, as in nn::Pass
  checkpoint::LoadedModel loaded;  // of a shard the weights alone: `spec` is the whole model's
  std::unique_ptr<models::InferenceModel> model;
  bool decoded = false;                // a matrix has a storage type other than the activations
  std::optional<nn::Adapter> adapter;  // of a shard: its part
  // For engines, which divide adapters among ranks: `adapter`, or of a shard all of it in host memory. Null: none.
  const nn::Adapter* whole_adapter() const;
  int64_t adapter_rank = 0;
  // The adapter replaces weights (DoRA, modules_to_save), so it is merged into `loaded`, `adapter` is empty, and the
  // base model's weights are not available.
  bool adapter_merged = false;

 private:
  void open_adapter(const std::string& path);

  Arena adapter_arena_;
  std::unique_ptr<Device> host_;  // of a shard, for the whole adapter
  Arena whole_arena_;
  std::optional<nn::Adapter> whole_adapter_;
  std::optional<checkpoint::TextAssets> text_;
};

// Errors: usage for an id outside [0, vocab).
void check_ids(const std::vector<int32_t>& ids, int64_t vocab);

}  // namespace ingot::runtime
