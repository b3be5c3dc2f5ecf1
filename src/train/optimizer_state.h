// The trainable parameters of a run, all of the model's (full fine-tuning, pretraining) or an adapter's, with their
// optimizer state and gradients.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/pass.h"
#include "spec/lora.h"
#include "tensor/weight_set.h"
#include "train/host_update.h"
#include "train/optimizer.h"
#include "train/sharding.h"
#include "train/weight_run.h"

namespace ingot::train {

class ShardedWeights;

// A trainable tensor, or the part of it that a tensor-parallel rank has, and its optimizer state. Where data-parallel
// ranks shard the state (train/sharding.h), masters and state are flat and hold this rank's own elements; otherwise
// they have the shape of what is held.
struct TrainedParameter : spec::HeldPart {
  std::string name;   // "model.norm.weight"; for adapters "model.layers.0.self_attn.q_proj.lora_A.weight"
  size_t number = 0;  // among the trainable tensors of the whole model
  // Of a pipeline's last stage: a tied embedding that the first stage has too. Both stages update theirs with the sum
  // of their gradients; norms and checkpoints have it once.
  bool copy = false;
  bool divided = false;  // spec::HeldParameter::divided, of the base in an adapter
  Shape shape;           // as held
  Shape whole;           // the whole tensor's
  bool decay = false;    // weight decay applies
  // With ShardSpec::sum_slices above 1, else empty. A rank's part has whole blocks.
  std::vector<SquareBlock> square_blocks;
  std::vector<Range> parts;  // by rank: its range of elements when work on the tensor is divided among ranks
  Range shard;               // the elements that this rank updates
  const Optimizer* optimizer = nullptr;
  Tensor master;                   // f32 or bf16: the weights that the optimizer updates
  std::vector<StateTensor> state;  // of `optimizer`
  Tensor gradient;  // f32; with fixed-point sums: one contribution or the final value, in memory shared by all tensors
  // f32: of a tied embedding that this rank uses twice, the gradient from the lookup; absent elsewhere, and with
  // fixed-point sums.
  Tensor tied_gradient;
  Tensor sum;             // i64, only with fixed-point sums: the sum of contributions (ops/fixed_sum.h)
  Tensor shard_gradient;  // [own elements], f32 or fixed-point i64: gradient over all ranks, at a step's end
  // What the model computes with: the same memory as master when the dtypes agree; in full training at ZeRO stage 3
  // memory that has it only while it is used (ShardedWeights).
  Tensor weight;
  Tensor own_weight;  // [elements of the shard] of it, flat, where the update writes them

  // The number of its first elements that norms and checkpoints get from this rank: of those that several ranks have,
  // they get one rank's. Of expert-parallel ranks, each counts (ShardSpec::is_first_with).
  int64_t counted_elements(const ShardSpec& share) const {
    return copy ? 0 : HeldPart::counted_elements(share.shards.front());
  }
  bool is_counted(const ShardSpec& share) const { return counted_elements(share) > 0; }
  // Where ranks divide the state, or sums are taken in slices: the number of blocks of the shard whose squares are
  // summed apart.
  int64_t num_square_blocks(const ShardSpec& share) const;
  // Whether this one of `square_blocks` is of the shard.
  bool has(const SquareBlock& block) const;
};

// Consecutive tensors whose gradients are reduced together, when all of them are final in backward, which visits
// buckets from last to first. There is one bucket per block, one for the tensors before the blocks and one for those
// after them; ShardSpec::bucket_bytes joins them. With expert parallelism a block's experts have a bucket of
// their own, the last one of the block: their gradients have to be final before those of the rest.
struct Bucket {
  int64_t layer = -1;       // the first block; -1: before the blocks, INT64_MAX: after them
  std::vector<int> chunks;  // of ShardSpec::shards: those that add gradients to it
  // The tied embedding among its tensors, if this rank computes one use of it only, and another stage the other.
  std::optional<size_t> split;
  size_t first = 0;  // tensors [first, last)
  size_t last = 0;
  bool divided = false;  // TrainedParameter::divided of its tensors: fewer ranks reduce them
  // Its tensors in memory order: by rank and, for each rank, in the order of the tensors.
  std::vector<size_t> order;
  bool early = false;  // contains the tied embedding: backward writes to its memory already at the output head
  // The gradients or fixed-point sums of its tensors, consecutive and flat. From ZeRO stage 2 on it holds those of one
  // micro-batch, and buckets alternate between two shared buffers; an early bucket has its own.
  Tensor memory;
  std::vector<size_t> sections;  // by rank: number of elements of its section of `memory`, which contains its parts
  Tensor shard_sum;              // from ZeRO stage 2 on: this rank's section, summed over the step
  // Its tensors, where ranks divide them and each has the whole weights; else empty. One run, unless ranks have tensors
  // as wholes (Muon).
  std::vector<WeightRun> runs;
};

struct OptimizerDtypes {
  DType state = DType::f32;       // of the optimizer state: f32, bf16, or u8 for 8-bit states (state_layout())
  DType master = DType::f32;      // f32 or bf16, for bf16 weights; f32 weights are their own masters
  bool fixed_point_sums = false;  // gradients are summed in int64 fixed point (`determinism: bitwise`)
  OptimizerName optimizer = OptimizerName::adamw;
  // Masters that are not the weights themselves, and the state of their parameters, are in host memory, and updated
  // there (HostUpdate). Not for optimizers that need whole matrices, nor for 8-bit states.
  bool offload = false;
};

// Bytes on one rank by kind, for `--dry-run` and for allocation.
struct OptimizerStateBytes {
  size_t master = 0;     // 0 where master and weight share memory
  size_t moments = 0;    // the optimizer's state
  size_t offloaded = 0;  // masters and state in host memory
  size_t gradients = 0;
  size_t update = 0;   // scratch of the largest update (update_bytes()): part of a step's scratch, not of this state
  size_t adapter = 0;  // the adapter weights that the model computes with
  size_t state =
      0;  // this rank's part of a checkpoint: optimizer state, and masters even if they share the weights' memory
};

OptimizerStateBytes optimizer_state_bytes(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora,
                                          DType activation, OptimizerDtypes types, const ShardSpec& share = {});

// A parameter of full training, and the part of it that each data-parallel rank updates: elements, by rank.
struct DividedParameter {
  size_t whole = 0;  // index in spec::parameters
  std::vector<Range> parts;
};
// Those of a bucket of gradients, in an order in which the ranks' parts follow each other.
using DividedBucket = std::vector<DividedParameter>;
std::vector<DividedBucket> divide_parameters(const spec::ModelSpec& model, DType activation, OptimizerDtypes types,
                                             const ShardSpec& share);

// What ranks exchange of a bucket, in bytes.
struct BucketBytes {
  bool divided = false;              // Bucket::divided
  size_t memory = 0;                 // Bucket::memory
  size_t section = 0;                // this rank's section of it
  size_t split = 0;                  // Bucket::split's gradient; 0 without one
  std::vector<size_t> partial = {};  // of each tensor whose gradient tensor-parallel ranks have parts of
  std::vector<size_t> copied = {};   // of the part of each that several tensor-parallel ranks have
  std::vector<size_t> weights = {};  // of each of Bucket::runs
};
std::vector<BucketBytes> bucket_bytes(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora,
                                      DType activation, OptimizerDtypes types, const ShardSpec& share);

// Owns the optimizer state and the gradients and, for LoRA, the adapter's weights. All are allocated once, before the
// first step.
class OptimizerState {
 public:
  // Full training: every parameter of share.shards. `weights` are writable, with matrices of dtype `activation` and
  // vectors of f32. `sharded`: at ZeRO stage 3 their owner, which has divided them by divide_parameters(); else null.
  // `host`: with types.offload the device of host memory, which outlives this; else null.
  OptimizerState(Device& device, const spec::ModelSpec& model, const WeightSet& weights, DType activation,
                 OptimizerDtypes types, const ShardSpec& share = {}, const ShardedWeights* sharded = nullptr,
                 Device* host = nullptr);
  // LoRA: the adapters of share.shards. A is uniform in +-1/sqrt(in) (PEFT's Kaiming initialisation with a = sqrt(5)),
  // drawn from `seed`; B is zero.
  OptimizerState(Device& device, const spec::ModelSpec& model, const spec::LoraSpec& lora, DType activation,
                 OptimizerDtypes types, uint64_t seed, const ShardSpec& share = {});

  std::vector<TrainedParameter>& tensors() { return tensors_; }
  const std::vector<TrainedParameter>& tensors() const { return tensors_; }
  int64_t num_parameters() const;
  // Trainable tensors of the whole model.
  size_t num_trainable() const { return num_trainable_; }
  const ShardSpec& share() const { return share_; }
  // Whether TrainedParameter::weight always has the whole weight.
  bool has_whole_weights() const { return has_whole_weights_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Updates the parameters for which is_offloaded(); null when there are none.
  HostUpdate* host_update() { return host_update_ ? &*host_update_ : nullptr; }
  bool is_offloaded(const TrainedParameter& t) const { return host_update_ && t.own_weight.data != t.master.data; }

  // Present only with fixed-point sums (ops/fixed_sum.h), of all trainable tensors of the whole model. ranges
  // [num_trainable()] i32: the next step's contributions to a tensor's gradient are below 2^range in magnitude; saved
  // in checkpoints. largest [num_trainable()] f32: the largest magnitude among the last step's contributions.
  const Tensor& ranges() const { return ranges_; }
  const Tensor& largest() const { return largest_; }

  // Number of optimizer updates so far, which AdamW's bias correction uses. Skipped steps are not counted.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }

  // Scratch bytes that update_parameter() takes at most.
  size_t update_bytes() const { return update_bytes_; }

  // For Model::set_trainable: by parameter of the whole model, its index in tensors(). The layer is one of the whole
  // model, wherever it is held.
  const std::vector<int>& trainable_index() const { return trainable_index_; }
  int64_t lowest_trainable_layer() const { return lowest_trainable_layer_; }
  // The LoRA adapter with the trainable weights; null in full training.
  const nn::Adapter* adapter() const { return adapter_ ? &*adapter_ : nullptr; }
  nn::Adapter* adapter() { return adapter_ ? &*adapter_ : nullptr; }
  int64_t adapter_rank() const { return adapter_rank_; }  // the adapter's; 0 in full training

  // At the start of full training: copies the weights into the masters.
  void init_masters(ops::Context& context);
  // After masters were written (a checkpoint was read): updates the weights from the masters, on each rank for its
  // shard. Step::refresh_weights also gathers those of the other ranks.
  void refresh_weights(ops::Context& context);

 private:
  friend OptimizerStateBytes optimizer_state_bytes(const spec::ModelSpec&, const std::optional<spec::LoraSpec>&, DType,
                                                   OptimizerDtypes, const ShardSpec&);
  friend std::vector<DividedBucket> divide_parameters(const spec::ModelSpec&, DType, OptimizerDtypes, const ShardSpec&);
  friend std::vector<BucketBytes> bucket_bytes(const spec::ModelSpec&, const std::optional<spec::LoraSpec>&, DType,
                                               OptimizerDtypes, const ShardSpec&);
  struct Layout;
  static OptimizerStateBytes bytes_of(const Layout& layout, OptimizerDtypes types);  // without the adapter's weights
  static Tensor& total_of(TrainedParameter& t, DType number);
  void allocate_state(Device& device, OptimizerDtypes types, const Layout& layout, Device* host = nullptr);
  void allocate_gradients(const Layout& layout);
  void allocate_shared_gradients(const Layout& layout);
  void allocate_fixed_sums(Device& device);
  void place_runs();

  ShardSpec share_;
  bool has_whole_weights_ = true;
  std::vector<TrainedParameter> tensors_;
  size_t num_trainable_ = 0;
  std::vector<Bucket> buckets_;
  Tensor ranges_;
  Tensor largest_;
  std::vector<int> trainable_index_;
  int64_t lowest_trainable_layer_ = 0;
  int64_t updates_ = 0;
  size_t update_bytes_ = 0;
  std::optional<nn::Adapter> adapter_;
  int64_t adapter_rank_ = 0;
  Arena adapter_arena_;
  Arena optimizer_arena_;
  Arena host_arena_;
  std::optional<HostUpdate> host_update_;
  Arena gradient_arena_;
};

// Updates a parameter's shard: masters, optimizer state, and the weights that the model computes with. gradient
// [elements of the shard] f32. REQUIRES a shard that is not empty.
void update_parameter(ops::Context& context, const TrainedParameter& parameter, const Tensor& gradient,
                      const UpdateAttributes& attributes);

}  // namespace ingot::train
