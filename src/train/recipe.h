// The recipe of a training run, which `ingot pretrain` and `ingot finetune` read (docs/recipes.md).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "data/packing.h"
#include "data/source.h"
#include "data/streaming_order.h"
#include "spec/layout.h"
#include "spec/pipeline_schedule.h"
#include "spec/sizes.h"
#include "tensor/dtype.h"
#include "train/optimizer.h"
#include "train/schedule.h"

namespace ingot::train {

enum class InitFrom { pretrained, random };
enum class Fp8Gradients { e4m3, e5m2 };
enum class Precision { fp32, bf16, fp8 };   // fp8: bf16 activations, fp8 gemms in the blocks' linear layers
enum class StateType { fp32, bf16, int8 };  // int8: 8-bit states in blocks of 256 elements (ops/blockwise.h)
enum class MasterType { fp32, bf16 };
enum class Order { ingot, megatron, streaming };
enum class Determinism { fast, bitwise };

struct AdapterRecipe {
  AutoOr<int64_t> rank{16};
  AutoOr<double> alpha;  // auto: twice the rank
  double dropout = 0;
  std::vector<std::string> targets = {"all-linear"};
  bool rslora = false;
};

struct SourceRecipe {
  std::string path;
  std::optional<double> weight;
  static SourceRecipe from_text(const std::string& path) { return {path, {}}; }
};

// How StreamingDataset interprets a source's weight: as repetitions of its samples per epoch, as its proportion of the
// epoch, or as a number of its samples.
enum class StreamingWeights { repeat, proportion, choose };

// StreamingDataset's arguments, under its own names.
struct StreamingRecipe {
  bool shuffle = false;
  data::StreamingShuffle shuffle_algo = data::StreamingShuffle::py1e;
  int64_t shuffle_seed = 9176;
  std::optional<int64_t> shuffle_block_size;
  std::optional<int64_t> num_canonical_nodes;
  data::StreamingPartition partition_algo = data::StreamingPartition::relaxed;
  data::StreamingSampling sampling_method = data::StreamingSampling::balanced;
  int64_t sampling_granularity = 1;
  std::optional<int64_t> epoch_size;
  StreamingWeights weights = StreamingWeights::repeat;
  int64_t nodes = 1, ranks = 1;  // the cluster whose run is reproduced; ranks per node

  data::StreamingSettings settings() const;
  data::StreamingWorld cluster() const { return {nodes, ranks, 1}; }
};

struct DataRecipe {
  OneOrMany<SourceRecipe> train;
  OneOrMany<SourceRecipe> eval;
  data::Format format = data::Format::automatic;
  data::OnError on_error = data::OnError::stop;
  int64_t sequence_length = 1024;
  bool packing = true;
  data::TooLong too_long = data::TooLong::truncate;
  Order order = Order::ingot;
  std::string split;              // Megatron-LM's split into training, validation and test; empty: all for training
  bool drop_last_partial = true;  // of held-out Megatron data sets
  std::optional<StreamingRecipe> streaming;
  int64_t seed = 17;
};

struct OptimizerRecipe {
  OptimizerName name = OptimizerName::adamw;
  double lr = 2e-4;
  // Absent: the optimizer's default, if it has such a setting.
  std::optional<std::vector<double>> betas;
  std::optional<double> eps;
  std::optional<double> momentum;
  double weight_decay = 0;
  double clip_grad_norm = 1;
  StateType state_dtype = StateType::fp32;
  MasterType master = MasterType::fp32;

  // Fills in the optimizer's defaults.
  void resolve();
  // REQUIRES resolve().
  OptimizerSettings settings() const;
};

struct ScheduleRecipe {
  ScheduleName name = ScheduleName::cosine;
  Warmup warmup;
  double min_lr = 0;
};

struct BatchRecipe {
  int64_t global = 8;
  AutoOr<int64_t> micro;
};

enum class Offload { none, weights, optimizer };
// What ranks exchange device memory by: the vendor's library where all have it, that library, or host memory.
enum class Collectives { automatic, device, host };

struct ParallelRecipe {
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, zero = 0;
  spec::CpCommType cp_comm_type = spec::CpCommType::a2a;
  bool sequence_parallel = false;  // spec::ModelShard::sequence_parallel
  int64_t units = 1;               // slices of sums over what tensor-parallel ranks cut (ShardSpec::sum_slices)
  spec::PipelineScheduleName schedule = spec::PipelineScheduleName::one_f_one_b;
  Offload offload = Offload::none;
  Collectives collectives = Collectives::automatic;
  AutoOr<int64_t> shard;   // of the replicas(), those that divide the state among them; auto: all
  int64_t bucket_mib = 0;  // ShardSpec::bucket_bytes
  AutoOr<int64_t> chunks;  // of each rank of a pipeline; auto: what `schedule` needs
  std::string order = spec::text_of(spec::default_order);
  int64_t timeout_s = 600;

  // Fills in `chunks`.
  void resolve();
  int64_t ranks() const { return replicas() * pp * tp; }
  // The ranks with the same part of the model.
  int64_t replicas() const { return dp * cp; }
  // `shard` as a number. ErrorKind::usage when it does not divide replicas().
  int64_t shard_ranks() const;
  // ErrorKind::usage for an `order` that is none, for an `ep` that does not divide shard_ranks(), and as these.
  spec::Layout layout() const;
};

struct EvalRecipe {
  int64_t every = 0;
  std::vector<std::string> prompts;
  int64_t sample_tokens = 48;
};

struct CheckpointRecipe {
  int64_t every = 0;
  AutoOr<double> minutes;  // auto: default_checkpoint_minutes where `every` is 0, else 0
  int64_t keep = 2;
  std::optional<std::string> store;  // s3:// address or folder; NAME/checkpoints in it mirrors the run's checkpoints
};

inline constexpr double default_checkpoint_minutes = 5;

struct LogRecipe {
  bool tensorboard = false;
  int64_t trace = 0;  // steps
};

struct Recipe {
  int64_t version = 1;
  std::string name;
  std::string model;
  std::optional<std::string> tokenizer;  // the model whose tokenizer is used for text; absent: `model`
  InitFrom init = InitFrom::pretrained;
  std::optional<AdapterRecipe> adapter;
  DataRecipe data;
  OptimizerRecipe optimizer;
  ScheduleRecipe schedule;
  std::optional<int64_t> steps;
  std::optional<double> epochs;
  std::optional<int64_t> tokens;
  BatchRecipe batch;
  Precision precision = Precision::bf16;
  Fp8Gradients fp8_gradients = Fp8Gradients::e4m3;
  // Storage of a LoRA run's frozen base. auto: as `precision`; stored: as in the file; int8: q8_0; int4: q4_0 in the
  // blocks' linear layers, q8_0 elsewhere; fp8: e4m3 in the blocks' linear layers.
  std::string weights = "auto";
  Determinism determinism = Determinism::fast;
  int64_t determinism_unit = 1;
  ParallelRecipe parallel;
  spec::Recompute recompute = spec::Recompute::none;
  EvalRecipe eval;
  CheckpointRecipe checkpoint;
  LogRecipe log;
  std::string device = "auto";
  AutoOr<int64_t> threads;
  std::string affinity = "none";  // or "auto", or the logical CPUs to bind threads to, "0-3,8"
  std::string run_dir = "runs";
  int64_t seed = 17;
};

// As the recipe writes them.
const char* name(Precision precision);
const char* name(StateType type);
const char* name(MasterType type);
const char* name(OptimizerName optimizer);
const char* name(spec::CpCommType type);
DType dtype_of(Precision precision);  // of activations
DType dtype_of(StateType type);       // u8 for int8
DType dtype_of(MasterType type);
// The CPUs that `affinity` lists, in the order given; empty for none and auto.
std::vector<int> cpus_of(const std::string& affinity);
// Whether the blocks' linear layers of a frozen base are stored in fp8.
bool fp8_base(const Recipe& recipe);

// Reads a recipe file and applies `overrides` ("optimizer.lr=1e-4"); an override of steps, epochs or tokens clears the
// other two. Errors: usage, with file, line and key, for invalid values and for settings that contradict each other;
// unsupported for a newer version of the format.
Recipe read_recipe(const std::filesystem::path& path, std::span<const std::string> overrides);

// ErrorKind::usage for a recipe without training data, which only a dry run accepts.
void require_training_data(const Recipe& recipe);
// The part of read_recipe's checks that depends on the ranks, for a recipe whose parallel.dp a launcher has set.
// `where` begins the message. Errors: usage.
void require_supported_ranks(const Recipe& recipe, const std::string& where);

// The resolved recipe as commented YAML, which reads back as the same recipe.
std::string write_recipe(const Recipe& recipe);

// The JSON Schema (draft 2020-12) of recipes.
std::string recipe_schema();

}  // namespace ingot::train
