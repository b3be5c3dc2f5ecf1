// A model of random weights and batches of random tokens, without files: what `ingot bench` runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/runtime.h"
#include "checkpoint/kept_weights.h"
#include "data/packing.h"
#include "infer/host_adapter.h"
#include "models/model.h"
#include "tensor/weight_set.h"
#include "train/step.h"

namespace ingot::app {

// Weights as the parameter table says, drawn by a RandomPool, matrices as `kept` says. The same numbers on every
// device. `scale` multiplies those that are drawn. Errors: resource when they do not fit; unsupported for rows that are
// not whole blocks; internal where `kept` leaves the type to a file.
WeightSet random_model(Device& device, const spec::ModelSpec& model, const checkpoint::KeptWeights& kept, uint64_t seed,
                       double scale = 1);
size_t random_model_bytes(const spec::ModelSpec& model, const checkpoint::KeptWeights& kept);

// What --weights says of random weights. Errors: usage for words that are not known, and for `stored`.
checkpoint::KeptWeights random_weights_kept(const std::string& word, DType activation);
inline constexpr const char* random_weights_help =
    "how weights are kept: auto (default: as --dtype), bf16, fp16, fp32, int8, int4 or fp8, as for generate";

// Sequence `number` of `length` random tokens, all of it documents of `document` tokens.
data::PackedSequence random_sequence(const spec::ModelSpec& model, int64_t length, int64_t document, uint64_t number);

// An adapter of random weights in `type` (f32, bf16 or f16), in host memory; the same numbers for the same `number`.
std::shared_ptr<const infer::HostAdapter> random_adapter(const spec::ModelSpec& model, const spec::LoraSpec& lora,
                                                         DType type, int64_t number);

// The model with few and narrow layers and large random weights, its head size and all that makes its family kept: what
// the CPU computes in a moment.
spec::ModelSpec reduced(const spec::ModelSpec& model);

// The hyper-parameters that `ingot bench` takes from a model's folder or file; its weights need not be there.
spec::ModelSpec bench_spec(const std::string& model);

// Most fp32 terms summed one after another on the way from ids to a gradient: what tolerance() is asked with.
int64_t chain_length(const spec::ModelSpec& model);

// What a training job is, besides the model.
struct TrainJob {
  std::optional<spec::LoraSpec> lora;  // without it every parameter is trained
  train::StepSettings step;
  train::OptimizerTypes types;
  int64_t document = 0;          // tokens a document
  double scale = 1;              // of the random weights
  std::string weights = "auto";  // how they are kept, as random_weights_kept takes it
};

// A model under training, in the memory of `runtime`'s device.
class TrainBench {
 public:
  TrainBench(Runtime& runtime, const spec::ModelSpec& model, const TrainJob& job);
  // Trains on `sequences` random sequences; the device is idle when it returns.
  train::StepResult run(int64_t sequences);
  const train::Trained& trained() const { return *trained_; }
  const models::Model& model() const { return *computed_; }
  train::Step& step() { return *step_; }

 private:
  Runtime& runtime_;
  spec::ModelSpec model_;
  TrainJob job_;
  WeightSet weights_;
  std::unique_ptr<models::Model> computed_;
  std::optional<train::Trained> trained_;
  std::optional<train::Step> step_;
  int64_t steps_ = 0;
};

// Loss and gradient norm of three steps, of the reduced model on the CPU and on the device.
struct SmallCheck {
  std::vector<double> cpu, device;
  double allowed = 0;  // as a share
  double least = 0;    // values below it are compared as if they were this: 1 for logarithms, whose error is absolute
  bool agrees() const;
};
SmallCheck check_small(Runtime& runtime, const spec::ModelSpec& model, const TrainJob& job);

}  // namespace ingot::app
