// Compares training of a tiny model on a device and on the CPU: `ingot bench parity`.
#pragma once

#include <string>
#include <vector>

#include "runtime/runtime.h"
#include "spec/model.h"

namespace ingot::bench {

// The largest error of a job relative to the allowed error, and details for the report. Errors are norms of
// differences of vectors: losses, gradient norms, each gradient, each update, logits and a greedy answer.
struct TrainingAgreement {
  std::string job;  // "fp32", "LoRA fp32", "bf16"
  double share = 0;
  std::string worst;  // the vector with the largest share
  double worst_error = 0, worst_size = 0;
  std::vector<double> losses, cpu_losses;

  bool agrees() const { return share <= 1; }
};

// fp32: the error relative to the CPU must be within rounding plus a multiple of the change that perturbing the weights
// in their last bit causes on the CPU. bf16: the error relative to the CPU's fp32 must be within that multiple of the
// CPU's own bf16 error.
// Where a gradient is closer to 0 than its error may be, rounding decides the direction of AdamW's first update: such
// elements of an update are not compared.
std::vector<TrainingAgreement> compare_training(runtime::Runtime& cpu, runtime::Runtime& device,
                                                const spec::ModelSpec& model, int64_t steps);

}  // namespace ingot::bench
