// The parameters that a run trains: all of the model's (full fine-tuning, pretraining) or an adapter's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/pass.h"
#include "spec/lora.h"
#include "tensor/weight_set.h"
#include "train/sharding.h"

namespace ingot::train {

// One trained tensor and the optimizer's state of it. Where ranks share the state (train/sharding.h), masters and
// moments are flat over this rank's own elements; else they have the tensor's shape.
struct TrainedTensor {
  std::string name;  // "model.norm.weight"; for adapters "model.layers.0.self_attn.q_proj.lora_A.weight"
  Shape shape;
  bool decay = false;        // weight decay applies
  std::vector<Range> parts;  // by rank, of the elements
  Range own;                 // the elements that this rank updates
  Tensor master;             // f32 or bf16: what the optimizer updates
  Tensor moment1;
  Tensor moment2;
  Tensor gradient;       // f32; of fixed sums: memory that all tensors share, for one contribution or the result
  Tensor tied_gradient;  // f32: the look-up's part of a tied embedding's; absent for everything else, and of fixed sums
  Tensor sum;            // i64, of fixed sums: what the contributions come to (ops/fixed_sum.h)
  Tensor own_total;      // [own elements]: where, of `gradient` or `sum`, all ranks' total is found at a step's end
  Tensor weight;         // what the model computes with; the same memory as master when the types agree
};

// Tensors whose gradients are finished together in backward, which comes to the buckets from the last to the first: a
// block's; those before and behind the blocks.
struct Bucket {
  size_t first = 0;  // tensors [first, last)
  size_t last = 0;
  bool early = false;  // the first, where the head has brought a part of the tied embedding's before
  // Their gradients or sums one behind the other, flat. Where ranks share gradients it holds one micro-batch's, and
  // buckets take turns with two pieces of memory, but for an early one.
  Tensor memory;
  std::vector<size_t> sections;  // of `memory`, in elements: by rank, that with its parts
  Tensor kept;                   // where ranks share gradients: this rank's section, over the step
};

struct OptimizerTypes {
  DType state = DType::f32;   // both moments: f32 or bf16
  DType master = DType::f32;  // f32 or bf16: of bf16 weights; f32 weights are their own masters
  bool fixed_sums = false;    // gradients are summed in int64 fixed point (`determinism: bitwise`)
};

// Bytes by kind of one rank, for `--dry-run` and for allocation.
struct TrainedBytes {
  size_t master = 0;  // 0 where master and weight are the same memory
  size_t moments = 0;
  size_t gradients = 0;
  size_t adapter = 0;  // the adapter's weights that the model computes with
  size_t state = 0;    // what a checkpoint keeps: masters, wherever they are, and moments
};

TrainedBytes trained_bytes(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora, DType activation,
                           OptimizerTypes types, const Share& share = {});

// Owns the trained tensors, their state and gradients; made once, before the first step.
class Trained {
 public:
  // Full training: every parameter. `weights` are writable and of type `activation` (matrices) and f32 (vectors).
  Trained(Device& device, const spec::ModelSpec& model, const WeightSet& weights, DType activation,
          OptimizerTypes types, const Share& share = {});
  // LoRA: A uniform in +-1/sqrt(in) (PEFT's Kaiming initialisation with a = sqrt(5)) from `seed`, B zero.
  Trained(Device& device, const spec::ModelSpec& model, const spec::LoraSpec& lora, DType activation,
          OptimizerTypes types, uint64_t seed, const Share& share = {});

  std::vector<TrainedTensor>& tensors() { return tensors_; }
  const std::vector<TrainedTensor>& tensors() const { return tensors_; }
  int64_t num_parameters() const;
  const Share& share() const { return share_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

  // Of fixed sums, else absent: by tensor the range of the next step's contributions, [tensors] i32, which is a part of
  // the state, and the largest magnitude among those of the last step, [tensors] f32.
  const Tensor& ranges() const { return ranges_; }
  const Tensor& largest() const { return largest_; }

  // How often the optimizer has updated the tensors: what AdamW's bias correction counts. Steps that were skipped are
  // not among them.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }

  // For Model::set_trained.
  const std::vector<int>& place_of_parameter() const { return place_of_parameter_; }
  int64_t lowest_layer() const { return lowest_layer_; }
  // LoRA's adapter over the trained weights; null in full training.
  const nn::Adapter* adapter() const { return adapter_ ? &*adapter_ : nullptr; }
  nn::Adapter* adapter() { return adapter_ ? &*adapter_ : nullptr; }

  // At the start of full training: masters get the values of the weights.
  void take_masters(ops::Context& context);
  // After masters were written (a checkpoint was read): the weights the model computes with follow them, each rank's
  // its own. Step::refresh_weights brings those of the other ranks too.
  void refresh_weights(ops::Context& context);

 private:
  friend TrainedBytes trained_bytes(const spec::ModelSpec&, const std::optional<spec::LoraSpec>&, DType, OptimizerTypes,
                                    const Share&);
  struct Layout;
  static TrainedBytes bytes_of(const Layout& layout, OptimizerTypes types);  // without the adapter's weights
  static Tensor& total_of(TrainedTensor& t, DType number);
  void allocate_state(Device& device, OptimizerTypes types, const Layout& layout);
  void take_gradients(const Layout& layout);
  void take_shared_gradients(const Layout& layout);
  void take_fixed_sums(Device& device);

  Share share_;
  std::vector<TrainedTensor> tensors_;
  std::vector<Bucket> buckets_;
  Tensor ranges_;
  Tensor largest_;
  std::vector<int> place_of_parameter_;
  int64_t lowest_layer_ = 0;
  int64_t updates_ = 0;
  std::optional<nn::Adapter> adapter_;
  Arena adapter_arena_;
  Arena optimizer_arena_;
  Arena gradient_arena_;
};

}  // namespace ingot::train
