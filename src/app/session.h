// One opened model: what every command that computes with one shares.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/command.h"
#include "app/runtime.h"
#include "app/text_input.h"
#include "checkpoint/load.h"
#include "checkpoint/text_assets.h"
#include "models/model.h"

namespace ingot::app {

// What --dtype says of inference. ErrorKind::usage for a word that is not known.
inline constexpr const char* dtype_help = "what is computed in: bf16 (default), fp16 or fp32";
DType activation_of(const std::string& dtype);

// The options --model, --adapter, --device, --dtype, --weights and --threads.
struct ModelOptions {
  std::string model;
  std::optional<std::string> adapter;
  std::string device = "auto";
  std::string dtype = "bf16";
  std::string weights = "auto";
  std::optional<int64_t> threads;

  // `with_adapter` false: for a command that takes none.
  void declare(Arguments& arguments, bool with_adapter = true);
};

// Owns the machine, the weights and the adapter; one thread at a time.
class Session {
 public:
  // Errors: usage for an option's value that is not known; unsupported for weights that this build cannot keep; those
  // of open_runtime, open_model, load_model and load_adapter.
  explicit Session(const ModelOptions& options);

  // Reads tokenizer, template and end-of-text ids; at most once.
  const checkpoint::TextAssets& text();
  // Errors: not_found when the model has no tokenizer.
  const text::Tokenizer& tokenizer();

  // The input as ids. A text gets the special tokens that the tokenizer puts around it.
  // Errors: usage when there are none, or ids outside the vocabulary.
  std::vector<int32_t> encode(const TextInput& input);

  // The sizes of a pass over `tokens` tokens of one sequence, with logits for `logit_rows` of them.
  models::PassShape shape(int64_t tokens, int64_t logit_rows) const;
  // One segment over `tokens` rows when there is an adapter.
  std::vector<nn::AdapterSegment> segments(int64_t tokens) const;

  Runtime runtime;
  checkpoint::ModelSource source;
  DType activation;
  checkpoint::LoadedModel loaded;
  std::unique_ptr<models::Model> model;
  bool decoded = false;  // a matrix is stored in another type than the activations
  std::optional<nn::Adapter> adapter;
  int64_t adapter_rank = 0;
  // The adapter replaces weights (DoRA, modules_to_save), so it is in `loaded` and not in `adapter`: there is no base
  // here.
  bool adapter_merged = false;

 private:
  void open_adapter(const std::string& path);

  Arena adapter_arena_;
  std::optional<checkpoint::TextAssets> text_;
};

// Errors: usage for an id outside [0, vocab).
void check_ids(const std::vector<int32_t>& ids, int64_t vocab);

}  // namespace ingot::app
