// Compares a tiny model of every family on a device and on the CPU: `ingot bench parity`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/parity_serving.h"
#include "bench/parity_training.h"

namespace ingot::bench {

struct ParityOptions {
  std::vector<std::string> shapes;  // of parity_shapes(); empty: all
  std::string device = "cuda:0";
  bool serving = false;           // compare serving instead of training
  std::optional<int64_t> steps;   // of training; absent: 10
  std::optional<int64_t> others;  // of serving: additional requests in the same batch; absent: 64
};

// Called with each result when it is known, and the name of its shape.
struct ParityRows {
  std::function<void(const std::string& shape, const TrainingAgreement&)> training;
  std::function<void(const std::string& shape, const ServingAgreement&)> serving;
};

struct ParityReport {
  std::string device, arch, device_model;
  int64_t steps = 0, others = 0;
  bool agrees = true;  // all rows do
};

// The names of the shapes, one or more a family.
std::vector<std::string> parity_shapes();

// Errors: usage for unknown shapes and values outside their range, those of open_runtime.
ParityReport bench_parity(const ParityOptions& options, const ParityRows& rows);

}  // namespace ingot::bench
