// Compares serving with a tiny model on a device and on the CPU: `ingot bench parity --serving`.
#pragma once

#include <string>
#include <vector>

#include "runtime/runtime.h"
#include "spec/model.h"

namespace ingot::bench {

// The result for one way to serve the same requests. Errors are of log-probabilities of greedily sampled tokens, in
// nats.
struct ServingAgreement {
  std::string job;     // "alone fp32"
  int64_t tokens = 0;  // compared
  // Number of answers that diverged at two tokens of equal probability to within `allowed`; they were compared up to
  // there.
  int64_t parted = 0;
  // The largest error; at a divergence it is half of the difference between the two tokens on the CPU.
  double error = 0, allowed = 0;
  std::string worst;               // location of the largest error: "rank 3, token 7"
  std::vector<std::string> wrong;  // violations of conditions that must hold exactly

  double share() const { return error == 0 ? 0 : error / allowed; }  // NaN and infinity propagate
  bool agrees() const { return wrong.empty() && error <= allowed; }
};

// The requests are the base model, adapters of three ranks, and JSON under a schema with and without an adapter. An
// engine on the device serves them in fp32 and bf16: one after another ("alone"), in one batch with `others` more
// requests ("in company"), and with prompts found in the prefix cache while adapters alternate in too few slots ("found
// prefix"). They are compared with the CPU's answers of "alone" in fp32. The allowed error is rounding plus a multiple
// of an error on the CPU: for fp32 that of weights changed in their last bits, for bf16 that of bf16 relative to fp32.
std::vector<ServingAgreement> compare_serving(runtime::Runtime& cpu, runtime::Runtime& device,
                                              const spec::ModelSpec& model, int64_t others);

}  // namespace ingot::bench
