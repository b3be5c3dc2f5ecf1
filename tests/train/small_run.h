// Shared by the training tests: a small random llama with full training or LoRA, and batches for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "data/packing.h"
#include "models/model.h"
#include "ops/registry.h"
#include "tests/counting_device.h"
#include "train/memory_probe.h"
#include "train/step.h"

namespace ingot::train {

spec::ModelSpec small_spec(bool tied = false);
spec::LoraSpec small_lora(std::vector<std::string> targets = {"all-linear"});

struct SmallRun {
  struct Settings {
    spec::ModelSpec spec = small_spec();
    std::optional<spec::LoraSpec> lora;
    DType weights = DType::f32;
    OptimizerDtypes types;
    int threads = 2;
    StepSettings step = {.sequence_length = 24};
    comm::Group ranks;  // the world: pipelines of `stages`, layers of `tp`, tokens of `cp`, the rest data-parallel
    int stages = 1;
    int tp = 1;
    int cp = 1;
    spec::CpCommType cp_comm_type = spec::CpCommType::a2a;
    int ep = 1;      // of the data-parallel ranks of a shard group
    int slices = 1;  // ShardSpec::sum_slices
    bool sequence_parallel = false;
    int chunks = 1;
    int zero = 0;
    int shard = 0;             // data-parallel ranks that divide the state among them; 0: all
    int64_t bucket_bytes = 0;  // ShardSpec::bucket_bytes
    bool offload = false;      // the frozen weights, of a device whose memory the host cannot access
    bool visible = true;       // whether the host can access the device's memory
  };

  CountingDevice device;
  ops::Registry registry;
  ThreadPool threads;
  spec::ModelSpec spec;
  CountingDevice host{true};                          // of offloaded optimizer state (types.offload)
  WeightSet weights;                                  // empty at ZeRO stage 3
  std::optional<ShardedWeights> sharded;              // at ZeRO stage 3
  std::vector<std::unique_ptr<models::Model>> parts;  // the whole model, or a rank's virtual stages
  std::optional<OptimizerState> optimizer_state;
  std::optional<Step> step;
  size_t step_bytes = 0;  // allocated by creating `step`

  explicit SmallRun(const Settings& settings);
  TrainedModel model();

  // All elements of a weight that this rank's copy has. At ZeRO stage 3 the data-parallel ranks call it together.
  std::vector<float> weight(const TrainedParameter& t) const;
  // Sets B of every adapter to random values instead of zeros.
  void randomise_b(uint64_t seed);
  // `count` sequences of two documents each with a few masked tokens, named 0, 1, ...
  std::vector<data::PackedSequence> sequences(int64_t count) const;
  static std::vector<int64_t> samples(int64_t count);
  // Gives the step's memory back and probes for one with micro-batches of up to `micro` units. On a rank that `lacks`
  // memory, the device has room for no more than the largest of the parts that a step of the settings takes.
  ProbedStep probe(int64_t micro, bool lacks, const std::vector<data::PackedSequence>& batch);
  StepResult run(int64_t at, double lr, const std::vector<data::PackedSequence>& batch);
  // The loss of a batch, summed over its loss tokens.
  double evaluate(const std::vector<data::PackedSequence>& batch);
};

// An f32, bf16 or u8 tensor as floats.
std::vector<float> floats(const Tensor& tensor);
// Master weights, optimizer states and weights of all parameters, one after another.
std::vector<std::vector<float>> state_of(const OptimizerState& optimizer_state);
std::vector<std::vector<float>> gradients_of(const OptimizerState& optimizer_state);

}  // namespace ingot::train
