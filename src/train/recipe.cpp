#include "train/recipe.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/cpu_list.h"
#include "base/error.h"
#include "base/number.h"
#include "base/uri.h"

template <>
struct ingot::EnumNames<ingot::train::InitFrom> {
  static constexpr std::pair<train::InitFrom, const char*> names[] = {{train::InitFrom::pretrained, "pretrained"},
                                                                      {train::InitFrom::random, "random"}};
};
template <>
struct ingot::EnumNames<ingot::train::Precision> {
  static constexpr std::pair<train::Precision, const char*> names[] = {
      {train::Precision::fp32, "fp32"}, {train::Precision::bf16, "bf16"}, {train::Precision::fp8, "fp8"}};
};
template <>
struct ingot::EnumNames<ingot::train::Fp8Gradients> {
  static constexpr std::pair<train::Fp8Gradients, const char*> names[] = {{train::Fp8Gradients::e4m3, "e4m3"},
                                                                          {train::Fp8Gradients::e5m2, "e5m2"}};
};
template <>
struct ingot::EnumNames<ingot::train::StateType> {
  static constexpr std::pair<train::StateType, const char*> names[] = {{train::StateType::fp32, "fp32"},
                                                                       {train::StateType::bf16, "bf16"}};
};
template <>
struct ingot::EnumNames<ingot::train::Order> {
  static constexpr std::pair<train::Order, const char*> names[] = {
      {train::Order::ingot, "ingot"}, {train::Order::megatron, "megatron"}, {train::Order::streaming, "streaming"}};
};
template <>
struct ingot::EnumNames<ingot::data::StreamingShuffle> {
  static constexpr std::pair<data::StreamingShuffle, const char*> names[] = {
      {data::StreamingShuffle::py1e, "py1e"}, {data::StreamingShuffle::py1br, "py1br"},
      {data::StreamingShuffle::py1b, "py1b"}, {data::StreamingShuffle::py1s, "py1s"},
      {data::StreamingShuffle::py2s, "py2s"}, {data::StreamingShuffle::naive, "naive"}};
};
template <>
struct ingot::EnumNames<ingot::data::StreamingPartition> {
  static constexpr std::pair<data::StreamingPartition, const char*> names[] = {
      {data::StreamingPartition::relaxed, "relaxed"}, {data::StreamingPartition::orig, "orig"}};
};
template <>
struct ingot::EnumNames<ingot::data::StreamingSampling> {
  static constexpr std::pair<data::StreamingSampling, const char*> names[] = {
      {data::StreamingSampling::balanced, "balanced"}, {data::StreamingSampling::fixed, "fixed"}};
};
template <>
struct ingot::EnumNames<ingot::train::Determinism> {
  static constexpr std::pair<train::Determinism, const char*> names[] = {{train::Determinism::fast, "fast"},
                                                                         {train::Determinism::bitwise, "bitwise"}};
};
template <>
struct ingot::EnumNames<ingot::train::ScheduleName> {
  static constexpr std::pair<train::ScheduleName, const char*> names[] = {{train::ScheduleName::constant, "constant"},
                                                                          {train::ScheduleName::linear, "linear"},
                                                                          {train::ScheduleName::cosine, "cosine"}};
};
template <>
struct ingot::EnumNames<ingot::spec::Recompute> {
  static constexpr std::pair<spec::Recompute, const char*> names[] = {
      {spec::Recompute::none, "none"}, {spec::Recompute::selective, "selective"}, {spec::Recompute::full, "full"}};
};
template <>
struct ingot::EnumNames<ingot::data::Format> {
  static constexpr std::pair<data::Format, const char*> names[] = {
      {data::Format::automatic, "auto"},        {data::Format::chat, "chat"},
      {data::Format::sharegpt, "sharegpt"},     {data::Format::instruction, "instruction"},
      {data::Format::completion, "completion"}, {data::Format::text, "text"},
      {data::Format::tokens, "tokens"}};
};
template <>
struct ingot::EnumNames<ingot::train::StreamingWeights> {
  static constexpr std::pair<ingot::train::StreamingWeights, const char*> names[] = {
      {train::StreamingWeights::repeat, "repeat"},
      {train::StreamingWeights::proportion, "proportion"},
      {train::StreamingWeights::choose, "choose"}};
};
template <>
struct ingot::EnumNames<ingot::data::OnError> {
  static constexpr std::pair<data::OnError, const char*> names[] = {{data::OnError::stop, "stop"},
                                                                    {data::OnError::skip, "skip"}};
};
template <>
struct ingot::EnumNames<ingot::data::TooLong> {
  static constexpr std::pair<data::TooLong, const char*> names[] = {
      {data::TooLong::truncate, "truncate"}, {data::TooLong::skip, "skip"}, {data::TooLong::stop, "stop"}};
};

// A number of steps, or a share of the run such as 5%.
template <>
struct ingot::ConfigType<ingot::train::Warmup> {
  static void read(const ConfigNode& node, train::Warmup& value, const FieldRules& rules) {
    const std::string text = node.is_scalar() ? node.as_text() : "";
    value = {};
    if (!text.ends_with('%')) {
      try {
        ConfigType<int64_t>::read(node, value.steps, rules);
      } catch (const Error&) {
        node.fail("a number of steps, or a share of the run such as 5%");
      }
      return;
    }
    value.percent = parse_real(std::string_view(text).substr(0, text.size() - 1));
    if (!value.percent || *value.percent < 0 || *value.percent >= 100) {
      node.fail("a share of at least 0% and below 100%, or a number of steps");
    }
  }
  static ConfigNode write(const train::Warmup& value) {
    return value.percent ? ConfigNode::text(fmt::format("{}%", *value.percent)) : ConfigNode::integer(value.steps);
  }
  static ConfigNode schema(const FieldRules& rules) {
    ConfigNode share = config_detail::type_schema("string");
    share.set("pattern", ConfigNode::text("^[0-9]{1,2}(\\.[0-9]+)?%$"));
    return config_detail::any_of({ConfigType<int64_t>::schema(rules), std::move(share)});
  }
};

namespace ingot::train {

// Beyond any use, and low enough that products of them stay whole numbers of 64 bits.
constexpr int64_t most_sequences = 1 << 20;
constexpr int64_t most_samples = int64_t{1} << 62;  // of a run
constexpr double most_tokens = 1e15;

template <class Visitor>
void describe(Visitor& v, AdapterRecipe& r) {
  v.field("rank", r.rank, "size of the low-rank matrices, or auto: from the amount of data", {.min = 1, .max = 4096});
  v.field("alpha", r.alpha, "the adapter is multiplied by alpha / rank; auto: twice the rank", {.above = 0});
  v.field("dropout", r.dropout, "of the adapter's input, in training", {.min = 0, .below = 1});
  v.field("targets", r.targets, "linear layers to adapt, as PEFT's target_modules; all-linear leaves the head out");
  v.field("rslora", r.rslora, "divide alpha by the square root of the rank instead");
}

template <class Visitor>
void describe(Visitor& v, SourceRecipe& r) {
  v.field("path", r.path,
          "a JSONL or text file, plain, .gz or .zst; order megatron: a .idx and .bin, without these endings",
          {.required = true});
  v.field("weight", r.weight,
          "how often its documents come in an epoch (1); order megatron: its share, or none for any source",
          {.above = 0});
}

template <class Visitor>
void describe(Visitor& v, StreamingRecipe& r) {
  v.field("shuffle", r.shuffle, "whether epochs are shuffled");
  v.field("shuffle_algo", r.shuffle_algo, "how");
  v.field("shuffle_seed", r.shuffle_seed, "of the shuffle and of what is sampled", {.min = 0});
  v.field("shuffle_block_size", r.shuffle_block_size, "samples; without: as StreamingDataset",
          {.min = 4, .max = 1'000'000'000'000});
  v.field("num_canonical_nodes", r.num_canonical_nodes, "of the order; without: as nodes (py1s, py2s: 64 times that)",
          {.min = 1, .max = 1'000'000});
  v.field("partition_algo", r.partition_algo, "how samples are shared out");
  v.field("sampling_method", r.sampling_method, "of weighted sources: other samples in each epoch, or the same");
  v.field("sampling_granularity", r.sampling_granularity, "samples taken at once from a shard", {.min = 1});
  v.field("epoch_size", r.epoch_size, "samples; without: those of the sources", {.min = 1, .max = 1'000'000'000});
  v.field("weights", r.weights, "what a source's weight is: times its samples, a share of the epoch, or samples");
  v.field("nodes", r.nodes, "of the cluster whose run is followed", {.min = 1, .max = 100'000});
  v.field("ranks", r.ranks, "of each of its nodes; what comes at the end of an epoch depends on both",
          {.min = 1, .max = 1'000});
}

template <class Visitor>
void describe(Visitor& v, DataRecipe& r) {
  v.field("train", r.train, "what to train on: a file, or a list of {path, weight}");
  v.field("eval", r.eval, "held-out data, evaluated before, during and after");
  v.field("format", r.format, "auto tells from the first record");
  v.field("on_error", r.on_error, "what a bad line does: stop the run, or be skipped and counted");
  v.field("sequence_length", r.sequence_length, "tokens of a packed sequence",
          {.min = 2, .max = data::max_sequence_length});
  v.field("packing", r.packing, "several documents in a sequence, each seeing itself only; false: one, then padding");
  v.field("too_long", r.too_long, "a chat or instruction longer than a sequence");
  v.field(
      "order", r.order,
      "who decides the order of samples: Ingot, Megatron-LM's GPT data sets (of .idx and .bin), or StreamingDataset "
      "(of MDS folders)");
  v.field("streaming", r.streaming, "order streaming: StreamingDataset's arguments");
  v.field("split", r.split,
          "order megatron: shares of training, validation and test, 969,30,1; validation is held out");
  v.field("drop_last_partial", r.drop_last_partial,
          "held-out Megatron data sets: leave out what is behind the last whole sample; false: it is padded");
  v.field("seed", r.seed, "of the order");
}

template <class Visitor>
void describe(Visitor& v, OptimizerRecipe& r) {
  v.field("name", r.name, "adamw");
  v.field("lr", r.lr, "learning rate at its highest", {.min = 0, .max = 10});
  v.field("betas", r.betas, "decay rates of the two moments", {.min = 0, .below = 1});
  v.field("eps", r.eps, "added to the root of the second moment", {.above = 0});
  v.field("weight_decay", r.weight_decay, "of matrices; norms and biases have none", {.min = 0, .max = 10});
  v.field("clip_grad_norm", r.clip_grad_norm, "largest norm of the gradient; 0: no clipping", {.min = 0});
  v.field("state_dtype", r.state_dtype, "of the moments");
  v.field("master", r.master, "of the weights that the optimizer updates");
}

template <class Visitor>
void describe(Visitor& v, ScheduleRecipe& r) {
  v.field("name", r.name, "after the warm-up: constant, linear or cosine down to min_lr");
  v.field("warmup", r.warmup, "of linear rise: steps, or a share of the run such as 5%",
          {.min = 0, .alias = "warmup_steps"});
  v.field("min_lr", r.min_lr, "learning rate of the last step", {.min = 0});
}

template <class Visitor>
void describe(Visitor& v, BatchRecipe& r) {
  v.field("global", r.global, "packed sequences a step", {.min = 1, .max = most_sequences});
  v.field("micro", r.micro,
          "packed sequences computed at once, or auto: as many as fit in memory; never changes results",
          {.min = 1, .max = most_sequences});
}

template <class Visitor>
void describe(Visitor& v, ParallelRecipe& r) {
  v.field("dp", r.dp, "data-parallel ranks", {.min = 1, .max = 1024});
  v.field("tp", r.tp, "tensor-parallel ranks", {.min = 1});
  v.field("pp", r.pp, "pipeline stages", {.min = 1});
  v.field("zero", r.zero, "what ranks share: 0 nothing, 1 optimizer state, 2 gradients too", {.min = 0, .max = 2});
  v.field("timeout_s", r.timeout_s, "seconds a rank waits for another before all end", {.min = 1});
}

template <class Visitor>
void describe(Visitor& v, EvalRecipe& r) {
  v.field("every", r.every, "steps between evaluations; 0: before the first and after the last only", {.min = 0});
  v.field("prompts", r.prompts, "continued at every evaluation, to be read");
  v.field("sample_tokens", r.sample_tokens, "length of those samples", {.min = 1, .max = 1 << 22});
}

template <class Visitor>
void describe(Visitor& v, CheckpointRecipe& r) {
  v.field("every", r.every, "steps between checkpoints; one is always written at the last step", {.min = 0});
  v.field("minutes", r.minutes, "one also when so long none was written; 0: never; auto: 5 where every is 0, else 0",
          {.min = 0, .max = 1e6});
  v.field("keep", r.keep, "newest checkpoints kept", {.min = 1});
  v.field("store", r.store, "s3://bucket/prefix, or a folder: checkpoints are kept in NAME/checkpoints there, too");
}

template <class Visitor>
void describe(Visitor& v, LogRecipe& r) {
  v.field("tensorboard", r.tensorboard, "also write the run's scalars as TensorBoard's event files, in its folder");
}

template <class Visitor>
void describe(Visitor& v, Recipe& r) {
  v.field("version", r.version, "of the recipe's format", {.min = 1, .max = 1});
  v.field("name", r.name, "of the run: its folder in run_dir", {.required = true});
  v.field("model", r.model, "a Hugging Face folder, a .gguf file or a registered name", {.required = true});
  v.field("tokenizer", r.tokenizer, "the model whose tokenizer reads text; without: the model itself");
  v.field("init", r.init, "weights from the model, or random ones of its shape");
  v.field("adapter", r.adapter, "LoRA; without it every weight is trained");
  v.section("data", r.data, "what is read, and how it is cut");
  v.section("optimizer", r.optimizer, "how weights move");
  v.section("schedule", r.schedule, "how the learning rate moves");
  v.field("steps", r.steps, "length of the run in steps (or epochs, or tokens)", {.min = 1, .max = most_tokens});
  v.field("epochs", r.epochs, "length in passes over the data", {.max = 1e6, .above = 0});
  v.field("tokens", r.tokens, "length in tokens", {.min = 1, .max = most_tokens});
  v.section("batch", r.batch, "how much is computed at once");
  v.field("precision", r.precision,
          "of weights and activations; sums are fp32. fp8: bf16, but the blocks' linear layers multiply in fp8");
  v.field("fp8_gradients", r.fp8_gradients,
          "of precision fp8: what gradients of activations are rounded to, e4m3 (finer) or e5m2 (of wider range)");
  v.field("weights", r.weights,
          "of a LoRA run's frozen base: auto (as precision), stored (as in the file), int8 (q8_0), int4 (q4_0, the "
          "blocks' linear layers; the rest q8_0) or fp8 (e4m3, the blocks' linear layers)");
  v.field(
      "determinism", r.determinism,
      "fast: gradients are summed in fp32 in the order of the units; bitwise: in int64 fixed point, where order and "
      "grouping do not matter");
  v.field("determinism_unit", r.determinism_unit, "packed sequences in a unit of work",
          {.min = 1, .max = most_sequences});
  v.section("parallel", r.parallel, "how the run is spread over devices");
  v.field("recompute", r.recompute, "what backward computes again instead of keeping it");
  v.section("eval", r.eval, "evaluation during the run");
  v.section("checkpoint", r.checkpoint, "what is kept on disk");
  v.section("log", r.log, "what is told beside events.jsonl");
  v.field("device", r.device, "cpu, cuda:0, hip:0 or auto; one for each rank, by commas");
  v.field("threads", r.threads, "of the CPU; auto: one a core, or one for each CPU of affinity",
          {.min = 1, .max = 1024});
  v.field("affinity", r.affinity,
          "none, or logical CPUs (0-3,8): each of these threads is bound to one, in their order");
  v.field("run_dir", r.run_dir, "where run folders are made");
  v.field("seed", r.seed, "of initialisation and dropout");
}

namespace {

// What Megatron's order goes with.
template <class Fail>
void check_megatron(const DataRecipe& d, Fail fail) {
  if (d.order != Order::megatron) {
    if (!d.split.empty()) fail("set data.order: megatron", "data.split is for Megatron's order");
    return;
  }
  if (!d.packing) fail("packing: true", "data.packing: false, but Megatron's samples are full");
  if (d.format != data::Format::automatic && d.format != data::Format::tokens) {
    fail("format: auto", "data.format names a kind of text, but data.order: megatron reads tokens");
  }
  if (!std::in_range<uint32_t>(d.seed)) {
    fail("a number from 0 to 4294967295", fmt::format("data.seed {} is none that Megatron's order takes", d.seed));
  }
  if (!d.split.empty() && !d.eval.values.empty()) {
    fail("leave one out", "data.split and data.eval both name held-out data");
  }
}

void check(const Recipe& r, const std::string& path) {
  const auto fail = [&](std::string hint, const std::string& message) {
    throw Error(ErrorKind::usage, path + ": " + message, std::move(hint));
  };
  const int lengths = r.steps.has_value() + r.epochs.has_value() + r.tokens.has_value();
  if (lengths != 1) {
    fail("give exactly one of steps, epochs and tokens",
         lengths == 0 ? "the run has no length" : "the run has more than one length");
  }
  if (r.steps && *r.steps > most_samples / r.batch.global) {
    fail("make it shorter", fmt::format("{} steps of {} sequences are more samples than {}, which can be counted",
                                        *r.steps, r.batch.global, most_samples));
  }
  if (r.name.empty() || r.name.find('/') != std::string::npos || r.name.starts_with(".")) {
    fail("use letters, digits, - and _", fmt::format("name '{}' cannot be a folder's name", r.name));
  }
  if (r.checkpoint.store) {
    const UriScheme scheme = parse_uri(*r.checkpoint.store).scheme;
    if (scheme == UriScheme::http || scheme == UriScheme::https) {
      fail("give s3://bucket/prefix, with AWS_ENDPOINT_URL for another store than Amazon's, or a folder",
           fmt::format("checkpoint.store {}: nothing can be written to an HTTP server", shown(*r.checkpoint.store)));
    }
  }
  check_megatron(r.data, fail);
  if (r.data.streaming && r.data.order != Order::streaming) {
    fail("set data.order: streaming", "data.streaming is for StreamingDataset's order");
  }
  if (r.data.streaming && r.data.streaming->weights == StreamingWeights::choose) {
    for (const SourceRecipe& source : r.data.train.values) {
      if (source.weight && *source.weight != std::floor(*source.weight)) {
        fail("give a whole number", fmt::format("{}: {} samples are to be chosen", source.path, *source.weight));
      }
    }
  }
  if (r.optimizer.name != "adamw") {
    fail("adamw is what there is", fmt::format("optimizer.name '{}' is not known", r.optimizer.name));
  }
  if (r.optimizer.betas.size() != 2) fail("for instance [0.9, 0.95]", "optimizer.betas needs two numbers");
  if (r.optimizer.master == StateType::bf16 && r.precision == Precision::fp32) {
    fail("precision: bf16 or optimizer.master: fp32", "optimizer.master bf16 beside weights of precision fp32");
  }
  if (r.schedule.min_lr > r.optimizer.lr) fail("lower it", "schedule.min_lr is above optimizer.lr");
  static constexpr std::string_view kept[] = {"auto", "stored", "int8", "int4", "fp8"};
  if (std::find(std::begin(kept), std::end(kept), r.weights) == std::end(kept)) {
    fail("auto, stored, int8, int4 or fp8", fmt::format("weights '{}' is not known", r.weights));
  }
  if (r.weights != "auto" && !r.adapter) {
    fail("weights: auto",
         fmt::format("weights: {} keeps the base frozen, but without an adapter the base is trained", r.weights));
  }
  if (r.precision == Precision::fp8 && r.weights != "auto" && r.weights != "fp8") {
    fail("weights: fp8, or precision: bf16",
         fmt::format("precision: fp8 multiplies fp8 weights, and weights: {} keeps others", r.weights));
  }
  if (r.fp8_gradients != Fp8Gradients::e4m3 && r.precision != Precision::fp8) {
    fail("precision: fp8", fmt::format("fp8_gradients without precision: fp8 (it is {})", name(r.precision)));
  }
  if (r.init == InitFrom::random && r.adapter) {
    fail("init: pretrained", "an adapter on random weights: there would be nothing to adapt");
  }
  if (r.batch.global % r.determinism_unit != 0) {
    fail("make it a multiple",
         fmt::format("batch.global {} is not whole units of determinism_unit {}", r.batch.global, r.determinism_unit));
  }
  if (!r.batch.micro.is_auto() && *r.batch.micro.value % r.determinism_unit != 0) {
    fail("make it a multiple", fmt::format("batch.micro {} is not whole units of determinism_unit {}",
                                           *r.batch.micro.value, r.determinism_unit));
  }
  try {
    cpus_of(r);
  } catch (const Error& error) {
    fail("none, or numbers and ranges of logical CPUs, such as 0-3,8", "affinity: " + error.message());
  }
  if (r.parallel.tp != 1 || r.parallel.pp != 1) {
    fail("tp 1, pp 1", fmt::format("parallel.tp {}, parallel.pp {}: this version spreads a run by data alone",
                                   r.parallel.tp, r.parallel.pp));
  }
}

}  // namespace

data::StreamingSettings StreamingRecipe::settings() const {
  data::StreamingSettings settings;
  settings.shuffle = shuffle;
  settings.algorithm = shuffle_algo;
  settings.seed = static_cast<uint64_t>(shuffle_seed);
  settings.block_size = shuffle_block_size;
  settings.partition = partition_algo;
  settings.sampling = sampling_method;
  settings.granularity = sampling_granularity;
  settings.canonical_nodes = num_canonical_nodes;
  settings.epoch_size = epoch_size;
  return settings;
}

const char* name(Precision precision) {
  for (const auto& [value, name] : EnumNames<Precision>::names) {
    if (value == precision) return name;
  }
  return "?";
}

DType dtype_of(Precision precision) { return precision == Precision::fp32 ? DType::f32 : DType::bf16; }
DType dtype_of(StateType type) { return type == StateType::fp32 ? DType::f32 : DType::bf16; }
std::vector<int> cpus_of(const Recipe& recipe) {
  return recipe.affinity == "none" ? std::vector<int>{} : parse_cpu_list(recipe.affinity);
}
bool fp8_base(const Recipe& recipe) {
  return recipe.adapter && (recipe.weights == "fp8" || recipe.precision == Precision::fp8);
}

Recipe read_recipe(const std::filesystem::path& path, std::span<const std::string> overrides) {
  ConfigNode node = ConfigNode::from_file(path);
  static constexpr const char* lengths[] = {"steps", "epochs", "tokens"};
  for (const std::string& override : overrides) {
    const std::string key = node.apply_override(override);
    for (const char* length : lengths) {
      if (key != length) continue;
      for (const char* other : lengths) {
        if (key != other) node.erase(other);
      }
    }
  }
  if (const ConfigNode* precision = node.find("precision"); precision != nullptr && precision->is_plain("fp16")) {
    throw_hint(ErrorKind::usage, "precision: bf16, which has the range of fp32; fp16 is for inference (--dtype fp16)",
               "{}: precision: fp16: small gradients become 0 in it unless the loss is scaled, which Ingot does not do",
               precision->where());
  }
  Recipe recipe = read_config<Recipe>(node);
  check(recipe, path.string());
  return recipe;
}

void require_training_data(const Recipe& recipe) {
  if (!recipe.data.train.values.empty()) return;
  throw_hint(ErrorKind::usage, "give a file or a folder, for instance data.train=PATH",
             "the recipe {} has no data.train: nothing to train on", recipe.name);
}

std::string write_recipe(const Recipe& recipe) { return write_config(recipe); }

std::string recipe_schema() { return config_schema<Recipe>("Ingot recipe"); }

}  // namespace ingot::train
