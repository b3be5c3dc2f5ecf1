// An opened model, as used by every command that runs one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/load.h"
#include "checkpoint/text_assets.h"
#include "models/model.h"
#include "runtime/runtime.h"

namespace ingot::runtime {

// Parses --dtype for inference. ErrorKind::usage for an unknown word.
DType activation_of(const std::string& dtype);

// The options --model, --adapter, --device, --dtype, --weights, --compute and --threads.
struct ModelOptions {
  std::string model;
  std::optional<std::string> adapter;
  std::string device = "auto";
  std::string dtype = "bf16";
  std::string weights = "auto";
  std::string compute = "auto";
  std::optional<int64_t> threads;
};

// Whether --compute asks for linear layers with int8 activations (ops/linear_int8.h). Errors: usage for an unknown word
// and for a device that is not the CPU.
bool asks_for_int8(const std::string& compute, const Device& device);
// ErrorKind::usage when no matrix is in q8_0 or q4_0.
void require_int8_weights(const WeightSet& weights);

// Owns the runtime, the weights and the adapter; to be used by one thread at a time.
class Session {
 public:
  // Errors: usage for an unknown option value, and for --compute int8 without such weights or on another device than
  // the CPU; unsupported for weight types that this build does not support; those of
  // open_runtime, open_model, load_model and load_adapter.
  explicit Session(const ModelOptions& options);

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

  Runtime runtime;
  checkpoint::ModelSource source;
  DType activation;
  bool int8_activations;  // --compute int8, as in nn::Pass
  checkpoint::LoadedModel loaded;
  std::unique_ptr<models::Model> model;
  bool decoded = false;  // a matrix has a storage type other than the activations
  std::optional<nn::Adapter> adapter;
  int64_t adapter_rank = 0;
  // The adapter replaces weights (DoRA, modules_to_save), so it is merged into `loaded`, `adapter` is empty, and the
  // base model's weights are not available.
  bool adapter_merged = false;

 private:
  void open_adapter(const std::string& path);

  Arena adapter_arena_;
  std::optional<checkpoint::TextAssets> text_;
};

// Errors: usage for an id outside [0, vocab).
void check_ids(const std::vector<int32_t>& ids, int64_t vocab);

}  // namespace ingot::runtime
