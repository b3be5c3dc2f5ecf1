// A model with random weights, and batches of random tokens, without files. Used by `ingot bench`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/weight_storage.h"
#include "data/packing.h"
#include "infer/host_adapter.h"
#include "models/model.h"
#include "runtime/runtime.h"
#include "tensor/weight_set.h"
#include "train/step.h"

namespace ingot::bench {

// Random weights for spec::parameters(model), drawn by a RandomPool, with matrices stored as `storage` says. The same
// numbers on every device. `scale` multiplies the random values; with 0 none are drawn. Errors: resource when they do
// not fit; unsupported for rows that are not whole blocks; internal where `storage` leaves the type to a file.
WeightSet random_model(Device& device, const spec::ModelSpec& model, const checkpoint::WeightStorage& storage,
                       uint64_t seed, double scale = 1);
size_t random_model_bytes(const spec::ModelSpec& model, const checkpoint::WeightStorage& storage);

// Parses --weights for random weights. Errors: usage for unknown words, and for `stored`.
checkpoint::WeightStorage random_weight_storage(const std::string& word, DType activation);
inline constexpr const char* random_weights_help =
    "type of the weights: auto (default: as --dtype), bf16, fp16, fp32, int8, int4 or fp8, as for ingot generate";

// Sequence `number`, of `length` random tokens, divided into documents of `document` tokens.
data::PackedSequence random_sequence(const spec::ModelSpec& model, int64_t length, int64_t document, uint64_t number);

// An adapter of random weights in `type` (f32, bf16 or f16), in host memory; the same numbers for the same `number`.
std::shared_ptr<const infer::HostAdapter> random_adapter(const spec::ModelSpec& model, const spec::LoraSpec& lora,
                                                         DType type, int64_t number);

// The model with fewer and narrower layers and large random weights; head size and the family's features are unchanged.
// Small enough for the CPU to compute quickly.
spec::ModelSpec reduced(const spec::ModelSpec& model);

// Reads the hyper-parameters of a model's folder or file for `ingot bench`; its weights need not exist.
spec::ModelSpec bench_spec(const std::string& model);

// The settings of a training job, besides the model.
struct TrainJob {
  std::optional<spec::LoraSpec> lora;  // absent: all parameters are trained
  train::StepSettings step;
  train::OptimizerDtypes types;
  int64_t document = 0;          // tokens per document
  double scale = 1;              // of the random weights
  std::string weights = "auto";  // storage types, as for random_weight_storage
};

// A model under training on the device of `runtime`.
class TrainBench {
 public:
  TrainBench(runtime::Runtime& runtime, const spec::ModelSpec& model, const TrainJob& job);
  // Trains on `sequences` random sequences; the device is idle when it returns.
  train::StepResult run(int64_t sequences);
  const train::OptimizerState& optimizer_state() const { return *optimizer_state_; }
  const models::Model& model() const { return *computed_; }
  train::Step& step() { return *step_; }

 private:
  runtime::Runtime& runtime_;
  spec::ModelSpec model_;
  TrainJob job_;
  WeightSet weights_;
  std::unique_ptr<models::Model> computed_;
  std::optional<train::OptimizerState> optimizer_state_;
  std::optional<train::Step> step_;
  int64_t steps_ = 0;
};

// Loss and gradient norm over three steps of the reduced model, on the CPU and on the device.
struct SmallCheck {
  std::vector<double> cpu, device;
  double allowed = 0;  // relative error
  // Smaller values are compared as if they had this magnitude: 1 for logarithms, whose error is absolute.
  double least = 0;
  bool agrees() const;
};
SmallCheck check_small(runtime::Runtime& runtime, const spec::ModelSpec& model, const TrainJob& job);

}  // namespace ingot::bench
