// Serving latency with random weights: `ingot bench decode`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/op_profile.h"
#include "bench/random_model.h"
#include "spec/model.h"

namespace ingot::bench {

struct DecodeOptions {
  std::string model;  // a folder with a config.json (weights are not needed), or a model
  std::string device = "cpu", dtype = "bf16", weights = "auto", compute = "auto";
  std::optional<int64_t> threads;
  int64_t batch = 1;                 // concurrent requests
  int64_t prompt = 128;              // tokens per prompt
  int64_t tokens = 64;               // tokens per answer; all but the first, which belongs to the prefill, are timed
  int64_t adapters = 0;              // random LoRA adapters, assigned to the requests in turn
  int64_t rank = 8;                  // of the adapters
  std::vector<std::string> targets;  // adapted linear layers; empty: all of them
  bool alternate = false;            // also time steps that alternate between two adapters
  bool row_invariant = true;         // gemms whose results do not depend on the number of rows
  bool profile = false;              // answer the prompts once more and time every op
};

// The cost of a step that uses another adapter than the previous step.
struct Alternation {
  double same = 0;         // seconds of a step of one token
  double alternating = 0;  // the same with two alternating adapters

  double percent() const { return 100 * (alternating / same - 1); }
};

struct DecodeReport {
  spec::ModelSpec model;
  std::string device, arch, device_model;
  double seconds = 0;            // median of the timed steps
  double fastest = 0;            // the shortest timed step, in seconds
  double prompt_seconds = 0;     // until every request had its first token
  double outside_us = 0;         // median host time of the engine in a step, in microseconds
  double read_bytes = 0;         // per step: weights, adapters, and keys and values in the middle of an answer
  double adapter_bytes = 0;      // the adapters' part of read_bytes
  std::optional<double> copied;  // bytes/s of a copy; GPUs only
  uint64_t memory_bytes = 0;
  std::optional<Alternation> alternation;
  std::optional<StepProfile> profile;  // mean of the steps that decode
  SmallCheck check;
};

// Compares a reduced model with the CPU, then times. Errors: usage for values outside their range, those of
// random_weight_storage and open_runtime; internal where the results differ or are not finite.
DecodeReport bench_decode(const DecodeOptions& options);

}  // namespace ingot::bench
