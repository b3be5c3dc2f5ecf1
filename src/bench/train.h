// Speed of a training job with random weights and tokens: `ingot bench train`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/op_profile.h"
#include "bench/random_model.h"
#include "runs/plan.h"
#include "tensor/device_rates.h"
#include "train/utilisation.h"

namespace ingot::bench {

struct TrainOptions {
  std::string model;  // a folder with a config.json (weights are not needed), or a model
  std::string device = "cpu", dtype = "bf16", weights = "auto", master = "fp32", recompute = "none";
  std::string optimizer = "adamw";   // optimizer.name of recipes
  std::string state_dtype = "fp32";  // optimizer.state_dtype of recipes
  std::optional<int64_t> threads;
  int64_t sequence = 1024;          // tokens per packed sequence
  std::optional<int64_t> document;  // tokens per document in the sequence; absent: the whole sequence
  int64_t global = 1;               // sequences per step
  std::optional<int64_t> micro;     // sequences per micro-batch; absent: as many as fit in memory
  std::optional<int64_t> rank;      // of LoRA adapters on all linear layers; absent: full training
  int64_t warmup = 3;               // untimed steps
  int64_t steps = 20;               // largest number of timed steps
  double seconds = 60;              // timing stops after this time, but not before two steps
  bool bitwise = false;             // sum gradients as with determinism: bitwise
  bool profile = false;             // run one more step and time every op

  int64_t document_tokens() const { return document.value_or(sequence); }
};

struct TrainReport {
  spec::ModelSpec model;
  std::string device, arch, device_model;
  runs::RunPlan plan;
  std::string weights;          // the type in which matrices are stored
  bool decoded = false;         // that is not the activations' type
  std::vector<double> seconds;  // of each timed step
  std::vector<double> losses;   // of each timed step
  double first_loss = 0;        // before the first update
  int64_t tokens = 0;           // per step
  train::StepWork work;         // FLOPs per step
  DeviceRates rates;            // zeros where unknown
  train::Shares shares;
  std::string warning;  // about the rates; empty: none
  uint64_t memory_bytes = 0;
  std::optional<StepProfile> profile;
  SmallCheck check;

  double mean_seconds() const;
  double median_seconds() const;
};

// The memory of the job and its settings, planned as `ingot pretrain` does. Errors: as bench_train's.
runs::RunPlan plan_train(const TrainOptions& options, const runtime::Runtime& runtime, const spec::ModelSpec& model);

// Compares a reduced model with the CPU, then times. Errors: usage for values outside their range and unknown words,
// unsupported for fp8, those of plan_run and open_runtime; internal where the results differ or are not finite.
TrainReport bench_train(const TrainOptions& options);

}  // namespace ingot::bench
