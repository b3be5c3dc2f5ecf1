#include "train/recipe.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file_version.h"
#include "base/number.h"
#include "storage/uri.h"
#include "train/recipe_names.h"

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
    value.percent = parse_double(std::string_view(text).substr(0, text.size() - 1));
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

// Far beyond practical use, and low enough that their products fit in int64.
constexpr int64_t max_sequences = 1 << 20;
constexpr int64_t max_samples = int64_t{1} << 62;  // of a run
constexpr double max_tokens = 1e15;

template <class Visitor>
void describe(Visitor& v, AdapterRecipe& r) {
  v.field("rank", r.rank, "LoRA rank, or auto: chosen from the amount of data", {.min = 1, .max = 4096});
  v.field("alpha", r.alpha, "LoRA alpha: the adapter's output is scaled by alpha / rank; auto: twice the rank",
          {.above = 0});
  v.field("dropout", r.dropout, "dropout of the adapter's input during training", {.min = 0, .below = 1});
  v.field("targets", r.targets,
          "linear layers to adapt, as PEFT's target_modules; all-linear: all but the output head");
  v.field("rslora", r.rslora, "rank-stabilised LoRA: scale by alpha / sqrt(rank) instead");
}

template <class Visitor>
void describe(Visitor& v, SourceRecipe& r) {
  v.field(
      "path", r.path,
      "a JSONL or text file, plain, .gz or .zst; order megatron: the path of a .idx and .bin pair without the suffix",
      {.required = true});
  v.field("weight", r.weight,
          "how many times its documents are repeated per epoch (1); order megatron: its blend weight, for all sources "
          "or for none",
          {.above = 0});
}

template <class Visitor>
void describe(Visitor& v, StreamingRecipe& r) {
  v.field("shuffle", r.shuffle, "shuffle the samples of every epoch");
  v.field("shuffle_algo", r.shuffle_algo, "shuffling algorithm");
  v.field("shuffle_seed", r.shuffle_seed, "seed of shuffling and sampling", {.min = 0});
  v.field("shuffle_block_size", r.shuffle_block_size, "samples per shuffle block; default: StreamingDataset's own",
          {.min = 4, .max = 1'000'000'000'000});
  v.field("num_canonical_nodes", r.num_canonical_nodes,
          "canonical nodes that define the sample order; default: nodes (py1s, py2s: 64 times nodes)",
          {.min = 1, .max = 1'000'000});
  v.field("partition_algo", r.partition_algo, "how samples are partitioned over nodes, ranks and workers");
  v.field("sampling_method", r.sampling_method,
          "sampling of weighted sources: balanced (new samples every epoch) or fixed (the same ones)");
  v.field("sampling_granularity", r.sampling_granularity, "samples drawn from a shard at a time", {.min = 1});
  v.field("epoch_size", r.epoch_size, "samples per epoch; default: the total of the sources",
          {.min = 1, .max = 1'000'000'000});
  v.field("weights", r.weights,
          "meaning of a source's weight: repeat (times its samples), proportion (share of the epoch) or choose (number "
          "of samples)");
  v.field("nodes", r.nodes, "nodes of the cluster whose sample order is reproduced", {.min = 1, .max = 100'000});
  v.field("ranks", r.ranks,
          "ranks per node of that cluster; nodes and ranks determine how the end of an epoch is padded or cut",
          {.min = 1, .max = 1'000});
}

template <class Visitor>
void describe(Visitor& v, DataRecipe& r) {
  v.field("train", r.train, "training data: a file, or a list of {path, weight}");
  v.field("eval", r.eval, "held-out data, evaluated before, during and after training");
  v.field("format", r.format, "format of the documents; auto: detected from the first record");
  v.field("on_error", r.on_error, "on a malformed line: stop the run, or skip and count it");
  v.field("sequence_length", r.sequence_length, "tokens per packed sequence",
          {.min = 2, .max = data::max_sequence_length});
  v.field("packing", r.packing,
          "pack several documents into a sequence, without attention across them; false: one document per sequence, "
          "then padding");
  v.field("too_long", r.too_long, "what to do with a chat or instruction longer than sequence_length");
  v.field("order", r.order,
          "whose sample order is used: Ingot's, that of Megatron-LM's GPT data sets (.idx and .bin), or "
          "StreamingDataset's (MDS folders)");
  v.field("streaming", r.streaming, "order streaming: StreamingDataset's arguments");
  v.field(
      "split", r.split,
      "order megatron: shares of training, validation and test, such as 969,30,1; the validation share is held out");
  v.field("drop_last_partial", r.drop_last_partial,
          "held-out Megatron data sets: drop the last partial sample; false: pad it");
  v.field("seed", r.seed, "seed of the sample order");
}

template <class Visitor>
void describe(Visitor& v, OptimizerRecipe& r) {
  v.field("name", r.name,
          "the optimizer; muon: Muon for the blocks' matrices, AdamW for embeddings, head, norms and biases");
  v.field("lr", r.lr, "peak learning rate", {.min = 0, .max = 10});
  v.field("betas", r.betas,
          "decay rates: of the first and second moment (adamw, muon), of the update's and the stored moment (lion)",
          {.min = 0, .below = 1});
  v.field("eps", r.eps, "adamw, muon: added to the square root of the second moment", {.above = 0});
  v.field("momentum", r.momentum, "muon, sgd: decay rate of the momentum", {.min = 0, .below = 1});
  v.field("weight_decay", r.weight_decay, "weight decay of matrices; not applied to norms and biases",
          {.min = 0, .max = 10});
  v.field("clip_grad_norm", r.clip_grad_norm, "gradients are clipped to this norm; 0: no clipping", {.min = 0});
  v.field("state_dtype", r.state_dtype,
          "data type of the optimizer's state; int8: of matrices, in blocks of 256 with a scale each");
  v.field("master", r.master, "data type of the master weights");
}

template <class Visitor>
void describe(Visitor& v, ScheduleRecipe& r) {
  v.field("name", r.name, "learning rate after the warm-up: constant, or linear or cosine decay to min_lr");
  v.field("warmup", r.warmup, "length of the linear warm-up: steps, or a share of the run such as 5%",
          {.min = 0, .alias = "warmup_steps"});
  v.field("min_lr", r.min_lr, "learning rate of the last step", {.min = 0});
}

template <class Visitor>
void describe(Visitor& v, BatchRecipe& r) {
  v.field("global", r.global, "packed sequences per step, over all ranks", {.min = 1, .max = max_sequences});
  v.field("micro", r.micro,
          "packed sequences per micro-batch, or auto: as many as fit in memory; on GPUs with determinism: fast it "
          "changes rounding",
          {.min = 1, .max = max_sequences});
}

template <class Visitor>
void describe(Visitor& v, ParallelRecipe& r) {
  v.field("dp", r.dp, "data-parallel ranks", {.min = 1, .max = 1024});
  v.field("tp", r.tp, "tensor-parallel ranks", {.min = 1, .max = 1024});
  v.field("sequence_parallel", r.sequence_parallel,
          "with tp: of norms and the residual each tensor-parallel rank has 1/tp of a micro-batch's tokens");
  v.field("units", r.units,
          "with determinism: bitwise, slices in which sums over what tp and cp cut are taken; every tp and cp that "
          "divides it gives the same bits",
          {.min = 1, .max = 1024});
  v.field("pp", r.pp, "pipeline stages", {.min = 1, .max = 1024});
  v.field("cp", r.cp, "context-parallel ranks: each has a part of every sequence's tokens", {.min = 1, .max = 1024});
  v.field(
      "cp_comm_type", r.cp_comm_type,
      "with cp: a2a, ranks exchange heads; allgather, they gather keys and values; p2p, these pass round a ring; with "
      "both cp may be above the number of heads");
  v.field("ep", r.ep, "expert-parallel ranks: of the dp x cp ranks, those that divide the experts of a mixture",
          {.min = 1, .max = 1024});
  v.field("schedule", r.schedule,
          "order of work in a pipeline; zb_h1 and zb_v compute the gradients of weights in what would be idle time");
  v.field("chunks", r.chunks, "parts of the model on each pipeline stage; auto: 2 for interleaved and zb_v, else 1",
          {.min = 1, .max = 64});
  v.field("zero", r.zero,
          "ZeRO stage, what is sharded over ranks: 0 nothing, 1 optimizer state, 2 gradients too, 3 weights too",
          {.min = 0, .max = 3});
  v.field("shard", r.shard,
          "with zero: of the dp x cp ranks, those that divide the state among them; there are dp x cp / shard "
          "replicas; auto: all",
          {.min = 1, .max = 1024});
  v.field("order", r.order,
          "which ranks are near each other, from the axis whose ranks are neighbours to that whose are farthest apart");
  v.field("bucket_mib", r.bucket_mib,
          "MiB of gradients that ranks reduce together, and whose weights they gather together with zero 1 or 2: "
          "consecutive blocks are joined until they have as many; 0: each block alone",
          {.min = 0, .max = 1 << 20});
  v.field("offload", r.offload,
          "what is in host memory; weights: those that an adapter leaves frozen, on the GPU only while they are used; "
          "optimizer: masters and optimizer state, which the CPU updates");
  v.field("collectives", r.collectives,
          "how ranks exchange GPU memory: device, NCCL or RCCL; host, through host memory; auto, the library if all "
          "have it");
  v.field("timeout_s", r.timeout_s, "seconds that a rank waits for another before the run is aborted", {.min = 1});
}

template <class Visitor>
void describe(Visitor& v, EvalRecipe& r) {
  v.field("every", r.every, "steps between evaluations; 0: only before the first and after the last step", {.min = 0});
  v.field("prompts", r.prompts, "prompts for which sample texts are generated at every evaluation");
  v.field("sample_tokens", r.sample_tokens, "tokens per sample text", {.min = 1, .max = 1 << 22});
}

template <class Visitor>
void describe(Visitor& v, CheckpointRecipe& r) {
  v.field("every", r.every, "steps between checkpoints; one is always written at the last step", {.min = 0});
  v.field("minutes", r.minutes,
          "also write a checkpoint when none was written for so many minutes; 0: never; auto: 5 if every is 0, else 0",
          {.min = 0, .max = 1e6});
  v.field("keep", r.keep, "number of newest checkpoints to keep", {.min = 1});
  v.field("store", r.store, "s3://bucket/prefix or a folder: checkpoints are also copied to NAME/checkpoints in it");
}

template <class Visitor>
void describe(Visitor& v, LogRecipe& r) {
  v.field("tensorboard", r.tensorboard, "also write the run's scalars as TensorBoard event files into the run folder");
  v.field("trace", r.trace,
          "steps, from the first one of this start, of which each rank writes a trace for Perfetto into the run folder",
          {.min = 0, .max = 1000});
}

template <class Visitor>
void describe(Visitor& v, Recipe& r) {
  v.field("version", r.version, "version of the recipe format",
          {.min = 1, .max = static_cast<double>(recipe_format.newest)});
  v.field("name", r.name, "name of the run, and of its folder in run_dir", {.required = true});
  v.field("model", r.model, "a Hugging Face folder, a .gguf file or a registered name", {.required = true});
  v.field("tokenizer", r.tokenizer, "the model whose tokenizer is used; default: the model itself");
  v.field("init", r.init, "start from the model's weights, or from random ones of its shape");
  v.field("adapter", r.adapter, "train a LoRA adapter; without it all weights are trained");
  v.section("data", r.data, "data sets, packing and sample order");
  v.section("optimizer", r.optimizer, "optimizer");
  v.section("schedule", r.schedule, "learning rate schedule");
  v.field("steps", r.steps, "length of the run in steps (instead: epochs or tokens)", {.min = 1, .max = max_tokens});
  v.field("epochs", r.epochs, "length of the run in passes over the data", {.max = 1e6, .above = 0});
  v.field("tokens", r.tokens, "length of the run in tokens", {.min = 1, .max = max_tokens});
  v.section("batch", r.batch, "batch sizes");
  v.field("precision", r.precision,
          "data type of weights and activations, with fp32 accumulation; fp8: bf16, with fp8 gemms in the blocks' "
          "linear layers");
  v.field("fp8_gradients", r.fp8_gradients,
          "precision fp8: type that gradients of activations are rounded to, e4m3 (finer) or e5m2 (wider range)");
  v.field("weights", r.weights,
          "type of a LoRA run's frozen base weights: auto (as precision), stored (as in the file), int8 (q8_0), int4 "
          "(q4_0 in the blocks' linear layers, q8_0 elsewhere) or fp8 (e4m3 in the blocks' linear layers)");
  v.field("determinism", r.determinism,
          "fast: gradients are summed in fp32, in the order of the units; bitwise: in int64 fixed point, independent "
          "of order and grouping");
  v.field("determinism_unit", r.determinism_unit, "packed sequences per unit of work (see determinism)",
          {.min = 1, .max = max_sequences});
  v.section("parallel", r.parallel, "parallelism over devices");
  v.field("recompute", r.recompute,
          "activations that the backward pass recomputes instead of saving (activation checkpointing)");
  v.section("eval", r.eval, "evaluation during the run");
  v.section("checkpoint", r.checkpoint, "checkpoints on disk");
  v.section("log", r.log, "logs besides events.jsonl");
  v.field("device", r.device, "cpu, cuda:0, hip:0 or auto; several ranks: one each, separated by commas");
  v.field("threads", r.threads, "CPU threads; auto: one per core, or one per CPU of affinity", {.min = 1, .max = 1024});
  v.field("affinity", r.affinity,
          "none; auto: threads are bound to cores near the rank's device; or logical CPUs (0-3,8) to bind them to, in "
          "order");
  v.field("run_dir", r.run_dir, "folder for the run folders");
  v.field("seed", r.seed, "seed of initialisation and dropout");
}

namespace {

// Checks the settings that Megatron's order requires or excludes.
template <class Fail>
void check_megatron(const DataRecipe& d, Fail fail) {
  if (d.order != Order::megatron) {
    if (!d.split.empty()) fail("set data.order: megatron", "data.split is only supported with data.order: megatron");
    return;
  }
  if (!d.packing)
    fail("set data.packing: true",
         "data.packing: false is not supported with data.order: megatron, whose samples are always packed");
  if (d.format != data::Format::automatic && d.format != data::Format::tokens) {
    fail("set data.format: auto", "data.format is a text format, but data.order: megatron reads tokens");
  }
  if (!std::in_range<uint32_t>(d.seed)) {
    fail("give a number from 0 to 4294967295",
         fmt::format("data.seed {} is out of range for data.order: megatron", d.seed));
  }
  if (!d.split.empty() && !d.eval.values.empty()) {
    fail("remove one of them", "data.split and data.eval both specify held-out data");
  }
}

// Checks that the optimizer has the settings that are given.
template <class Fail>
void check_optimizer(const OptimizerRecipe& o, Fail fail) {
  const auto refuse = [&](const char* key, const char* those) {
    fail(fmt::format("remove it (optimizer.{}=null), or use optimizer.name: {}", key, those),
         fmt::format("optimizer.{} is not a setting of {}", key, name(o.name)));
  };
  const bool adamw = o.name == OptimizerName::adamw || o.name == OptimizerName::muon;
  if (o.momentum && o.name != OptimizerName::muon && o.name != OptimizerName::sgd) refuse("momentum", "muon or sgd");
  if (o.betas && !adamw && o.name != OptimizerName::lion) refuse("betas", "adamw, muon or lion");
  if (o.eps && !adamw) refuse("eps", "adamw or muon");
  if (o.betas && o.betas->size() != 2)
    fail("give two numbers, for instance [0.9, 0.95]", "optimizer.betas needs two numbers");
}

// How `determinism: bitwise` works with `ranks` ranks of a kind, or without: with the setting `instead`.
std::string units_hint(const char* instead, int64_t ranks) {
  const bool power = std::has_single_bit(static_cast<uint64_t>(ranks));
  const std::string units = power ? fmt::format("set parallel.units to {} or a larger power of two, or ", ranks) : "";
  return fmt::format("{}set determinism: fast, or {}", units, instead);
}

// Tensor-parallel ranks have equal numbers of a sequence's rows and, for equal bits, whole parts of accumulation units.
template <class Fail>
void check_sequence_parallel(const Recipe& r, Fail fail) {
  const ParallelRecipe& p = r.parallel;
  if (p.tp == 1) {
    fail("set parallel.tp to the number of ranks, or remove parallel.sequence_parallel",
         "parallel.sequence_parallel with parallel.tp 1: no ranks share the rows");
  }
  const int64_t ranks = p.tp * p.cp, length = r.data.sequence_length;
  if (length % ranks != 0) {
    fail(fmt::format("use {} or {}", std::max(ranks, length / ranks * ranks), (length / ranks + 1) * ranks),
         fmt::format("data.sequence_length {} with parallel.sequence_parallel cannot be divided among parallel.tp {} x "
                     "parallel.cp {} ranks",
                     length, p.tp, p.cp));
  }
  if (r.determinism == Determinism::bitwise && p.units % ranks != 0) {
    fail(units_hint("parallel.sequence_parallel to false", ranks),
         fmt::format("determinism: bitwise with parallel.sequence_parallel, parallel.tp {}, parallel.cp {} and "
                     "parallel.units {}: a rank needs whole parts of an accumulation unit",
                     p.tp, p.cp, p.units));
  }
}

// What cannot be cut over the tensor-parallel ranks, or into the slices of sums.
template <class Fail>
void check_tensor_parallel(const Recipe& r, Fail fail) {
  const ParallelRecipe& p = r.parallel;
  const char* const setting = p.tp > 1 ? "parallel.tp" : "parallel.units";
  const auto refuse = [&](const std::string& hint, const char* other, const char* why) {
    fail(fmt::format("{}, or set {} to 1", hint, setting),
         fmt::format("{} with {} {}: {}", other, setting, p.tp > 1 ? p.tp : p.units, why));
  };
  if (r.determinism == Determinism::bitwise && p.units % p.tp != 0) {
    fail(units_hint("parallel.tp to 1", p.tp),
         fmt::format("determinism: bitwise with parallel.tp {} and parallel.units {}: sums over a layer's parts depend "
                     "on the number of parts, unless they are taken in a multiple of as many slices",
                     p.tp, p.units));
  }
  if (r.optimizer.name == OptimizerName::muon)
    refuse("use another optimizer.name", "optimizer.name: muon", "it needs whole matrices");
  if (r.optimizer.state_dtype == StateType::int8) {
    refuse("set optimizer.state_dtype to fp32 or bf16", "optimizer.state_dtype: int8",
           "its blocks of 256 elements would span parts of a tensor");
  }
}

template <class Fail>
void check_sum_slices(const Recipe& r, Fail fail) {
  const int64_t units = r.parallel.units;
  if (!std::has_single_bit(static_cast<uint64_t>(units))) {
    const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(units)));
    fail(fmt::format("use {} or {}", below, 2 * below), fmt::format("parallel.units {} is not a power of two", units));
  }
  const auto refuse = [&](const char* hint, const char* setting, const char* why) {
    fail(fmt::format("{}, or remove parallel.units", hint),
         fmt::format("{} with parallel.units {}: {}", setting, units, why));
  };
  if (r.data.sequence_length % units != 0) {
    fail("use a multiple of it",
         fmt::format("data.sequence_length {} cannot be divided by parallel.units {}", r.data.sequence_length, units));
  }
  if (r.determinism == Determinism::fast)
    refuse("set determinism: bitwise", "determinism: fast", "sums are taken in slices only for equal bits");
  if (r.precision == Precision::fp8)
    refuse("set precision: bf16", "precision: fp8", "a row's scale depends on how the row is cut");
  if (r.weights == "fp8") {
    refuse("use other weights, for instance int8", "weights: fp8", "a row's scale depends on how the row is cut");
  }
}

template <class Fail>
void check_offloaded_weights(const Recipe& r, Fail fail) {
  const ParallelRecipe& p = r.parallel;
  if (!r.adapter) {
    fail("train an adapter, or remove parallel.offload",
         "parallel.offload: weights without an adapter: all weights are trained, and none is frozen");
  }
  if (p.pp > 1) {
    fail("set parallel.pp to 1",
         fmt::format("parallel.offload: weights with parallel.pp {}: its micro-batches overlap, "
                     "and each would fetch all weights again",
                     p.pp));
  }
  if (p.replicas() > 1 && p.zero < 3) {
    fail("set parallel.zero to 3",
         fmt::format("parallel.offload: weights with {} ranks and parallel.zero {}: every rank would keep all weights "
                     "in host memory",
                     p.replicas(), p.zero));
  }
  if (!r.eval.prompts.empty()) {
    fail("remove eval.prompts, or parallel.offload",
         "eval.prompts with parallel.offload: weights: samples need the whole model on the device");
  }
}

template <class Fail>
void check_offloaded_optimizer(const Recipe& r, Fail fail) {
  const ParallelRecipe& p = r.parallel;
  const auto refuse = [&](const char* hint, const std::string& setting, const char* why) {
    fail(hint, fmt::format("parallel.offload: optimizer with {}: {}", setting, why));
  };
  if (r.adapter) refuse("remove parallel.offload", "an adapter", "its optimizer state is small");
  if (p.replicas() > 1 && p.zero == 0) {
    refuse("set parallel.zero to 1, 2 or 3", fmt::format("{} ranks and parallel.zero 0", p.replicas()),
           "every rank would keep and update all of the state");
  }
  if (p.replicas() > 1 && p.shard.value == 1) {
    refuse("raise or remove parallel.shard", fmt::format("{} ranks and parallel.shard 1", p.replicas()),
           "every rank would keep and update all of the state");
  }
  if (r.optimizer.name == OptimizerName::muon) {
    refuse("use another optimizer.name, or remove parallel.offload", "optimizer.name: muon",
           "its update multiplies matrices, for which the CPU is too slow");
  }
  if (r.optimizer.state_dtype == StateType::int8) {
    refuse("set optimizer.state_dtype to fp32 or bf16", "optimizer.state_dtype: int8",
           "the CPU updates states in fp32 and bf16");
  }
  if (r.precision == Precision::fp32 || r.optimizer.master == MasterType::bf16) {
    refuse("train in bf16 or fp8 with optimizer.master: fp32, or remove parallel.offload",
           r.precision == Precision::fp32 ? "precision: fp32" : "optimizer.master: bf16",
           "the weights on the GPU are the masters");
  }
}

template <class Fail>
void check_parallel(const Recipe& r, Fail fail) {
  ParallelRecipe p = r.parallel;
  p.resolve();
  try {
    spec::axis_order(p.order);
  } catch (const Error& error) {
    fail(error.hint(), "parallel.order: " + error.message());
  }
  if (p.pp * p.tp * p.ep > 1 && !r.eval.prompts.empty()) {
    fail(
        "remove eval.prompts, or set parallel.pp, parallel.tp and parallel.ep to 1",
        fmt::format("eval.prompts with parallel.pp {}, parallel.tp {} and parallel.ep {}: samples need the whole model "
                    "on one rank",
                    p.pp, p.tp, p.ep));
  }
  if (!p.shard.is_auto() && p.zero == 0) {
    fail("set parallel.zero to 1, 2 or 3, or remove parallel.shard",
         fmt::format("parallel.shard {} with parallel.zero 0: nothing is divided", *p.shard.value));
  }
  if (p.bucket_mib > 0 && p.zero == 3 && p.shard.value.value_or(p.replicas()) > 1 && !r.adapter) {
    fail("remove parallel.bucket_mib, or set parallel.zero to 2",
         fmt::format("parallel.bucket_mib {} with parallel.zero 3: gradients are divided like the weights, which are "
                     "gathered block by block",
                     p.bucket_mib));
  }
  if (p.offload == Offload::weights) check_offloaded_weights(r, fail);
  if (p.offload == Offload::optimizer) check_offloaded_optimizer(r, fail);
  if (p.zero == 3 && p.replicas() > 1 && !r.eval.prompts.empty()) {
    fail("remove eval.prompts, or set parallel.zero to 2",
         fmt::format("eval.prompts with parallel.zero 3 and {} ranks: samples need the whole model on one rank",
                     p.replicas()));
  }
  if (r.determinism == Determinism::bitwise && p.cp > 1 && p.cp_comm_type != spec::CpCommType::a2a) {
    fail("set parallel.cp_comm_type: a2a, or determinism: fast",
         fmt::format("determinism: bitwise with parallel.cp {} and parallel.cp_comm_type: {}: gradients of keys and "
                     "values are sums over the ranks, which depend on their number",
                     p.cp, name(p.cp_comm_type)));
  }
  if (r.determinism == Determinism::bitwise && p.units % p.cp != 0) {
    fail(units_hint("parallel.cp to 1", p.cp),
         fmt::format(
             "determinism: bitwise with parallel.cp {} and parallel.units {}: gradients of the parts of a sequence "
             "depend on the number of parts, unless it is a multiple of as many",
             p.cp, p.units));
  }
  if (p.sequence_parallel) check_sequence_parallel(r, fail);
  if (p.units > 1) check_sum_slices(r, fail);
  if (p.tp > 1 || p.units > 1) check_tensor_parallel(r, fail);
  if (p.pp == 1 && *p.chunks.value > 1) {
    fail("remove parallel.chunks, or raise parallel.pp",
         fmt::format("parallel.chunks {} with parallel.pp 1: there is no pipeline", *p.chunks.value));
  }
  if (p.pp == 1) return;
  if (p.zero == 2) {
    fail("set parallel.zero to 1 or 3",
         fmt::format("parallel.zero 2 with parallel.pp {}: a pipeline's stages add up whole gradients over a step",
                     p.pp));
  }
  try {
    const auto ranks = static_cast<int>(p.pp);
    spec::make_pipeline_schedule(p.schedule,
                                 {.ranks = ranks, .chunks = static_cast<int>(*p.chunks.value), .micro_batches = ranks});
  } catch (const Error& error) {
    fail(error.hint().empty() ? "change parallel.schedule or parallel.chunks" : error.hint(), error.message());
  }
}

void check(const Recipe& r, const std::string& path) {
  const auto fail = [&](std::string hint, const std::string& message) {
    throw Error(ErrorKind::usage, path + ": " + message, std::move(hint));
  };
  const int lengths = r.steps.has_value() + r.epochs.has_value() + r.tokens.has_value();
  if (lengths != 1) {
    fail("set exactly one of steps, epochs and tokens",
         lengths == 0 ? "the run has no length" : "the run has more than one length");
  }
  if (r.steps && *r.steps > max_samples / r.batch.global) {
    fail("lower steps or batch.global",
         fmt::format("{} steps of {} sequences exceed the largest supported number of samples, {}", *r.steps,
                     r.batch.global, max_samples));
  }
  if (r.name.empty() || r.name.find('/') != std::string::npos || r.name.starts_with(".")) {
    fail("use letters, digits, - and _", fmt::format("name '{}' cannot be used as a folder name", r.name));
  }
  if (r.checkpoint.store) {
    const UriScheme scheme = parse_uri(*r.checkpoint.store).scheme;
    if (scheme == UriScheme::http || scheme == UriScheme::https) {
      fail("give a folder or s3://bucket/prefix (AWS_ENDPOINT_URL selects a store other than Amazon's)",
           fmt::format("checkpoint.store {}: writing to an HTTP server is not supported", shown(*r.checkpoint.store)));
    }
  }
  check_megatron(r.data, fail);
  if (r.data.streaming && r.data.order != Order::streaming) {
    fail("set data.order: streaming", "data.streaming is only supported with data.order: streaming");
  }
  if (r.data.streaming && r.data.streaming->weights == StreamingWeights::choose) {
    for (const SourceRecipe& source : r.data.train.values) {
      if (source.weight && *source.weight != std::floor(*source.weight)) {
        fail("with data.streaming.weights: choose, give a whole number of samples",
             fmt::format("{}: weight {} is not a whole number", source.path, *source.weight));
      }
    }
  }
  check_optimizer(r.optimizer, fail);
  if (r.optimizer.master == MasterType::bf16 && r.precision == Precision::fp32) {
    fail("set precision: bf16 or optimizer.master: fp32",
         "optimizer.master: bf16 is not supported with precision: fp32");
  }
  if (r.schedule.min_lr > r.optimizer.lr) fail("lower schedule.min_lr", "schedule.min_lr is above optimizer.lr");
  static constexpr std::string_view known[] = {"auto", "stored", "int8", "int4", "fp8"};
  if (std::find(std::begin(known), std::end(known), r.weights) == std::end(known)) {
    fail("use auto, stored, int8, int4 or fp8", fmt::format("weights '{}' is not known", r.weights));
  }
  if (r.weights != "auto" && !r.adapter) {
    fail("set weights: auto, or add an adapter",
         fmt::format("weights: {} requires a frozen base, but without an adapter the base is trained", r.weights));
  }
  if (r.precision == Precision::fp8 && r.weights != "auto" && r.weights != "fp8") {
    fail("set weights: fp8, or precision: bf16",
         fmt::format("precision: fp8 needs fp8 weights, but weights is {}", r.weights));
  }
  if (r.fp8_gradients != Fp8Gradients::e4m3 && r.precision != Precision::fp8) {
    fail("set precision: fp8, or remove fp8_gradients",
         fmt::format("fp8_gradients is only supported with precision: fp8, not {}", name(r.precision)));
  }
  if (r.init == InitFrom::random && r.adapter) {
    fail("set init: pretrained", "init: random is not supported with an adapter");
  }
  if (r.batch.global % r.determinism_unit != 0) {
    fail("make it a multiple of determinism_unit",
         fmt::format("batch.global {} is not a multiple of determinism_unit {}", r.batch.global, r.determinism_unit));
  }
  if (!r.batch.micro.is_auto() && *r.batch.micro.value % r.determinism_unit != 0) {
    fail("make it a multiple of determinism_unit",
         fmt::format("batch.micro {} is not a multiple of determinism_unit {}", *r.batch.micro.value,
                     r.determinism_unit));
  }
  try {
    cpus_of(r.affinity);
  } catch (const Error& error) {
    fail("give none, auto, or numbers and ranges of logical CPUs, such as 0-3,8", "affinity: " + error.message());
  }
  check_parallel(r, fail);
}

}  // namespace

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
  if (const ConfigNode* version = node.find("version")) {
    require_known_version(version->where(), version->as_int(), recipe_format);
  }
  if (const ConfigNode* precision = node.find("precision"); precision != nullptr && precision->is_plain("fp16")) {
    throw_hint(ErrorKind::usage,
               "use precision: bf16, which has the range of fp32; fp16 is for inference only (--dtype fp16)",
               "{}: precision: fp16 is not supported for training: it needs loss scaling, which Ingot does not have",
               precision->where());
  }
  Recipe recipe = read_config<Recipe>(node);
  check(recipe, path.string());
  return recipe;
}

void require_supported_ranks(const Recipe& recipe, const std::string& where) {
  check_parallel(recipe, [&](std::string hint, const std::string& message) {
    throw Error(ErrorKind::usage, where + ": " + message, std::move(hint));
  });
}

void require_training_data(const Recipe& recipe) {
  if (!recipe.data.train.values.empty()) return;
  throw_hint(ErrorKind::usage, "give a file or a folder, for instance data.train=PATH",
             "the recipe {} has no data.train: nothing to train on", recipe.name);
}

std::string write_recipe(const Recipe& recipe) { return write_config(recipe); }

std::string recipe_schema() { return config_schema<Recipe>("Ingot recipe"); }

}  // namespace ingot::train
