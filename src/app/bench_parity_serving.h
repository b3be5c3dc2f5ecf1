// What a device serves beside what the CPU serves, with a tiny model: `ingot bench parity --serving`.
#pragma once

#include <string>
#include <vector>

#include "app/runtime.h"
#include "spec/model.h"

namespace ingot::app {

// Of one way to serve the same requests. Errors are of log-probabilities of greedily chosen tokens, in nats.
struct ServingAgreement {
  std::string job;     // "alone fp32"
  int64_t tokens = 0;  // compared
  // Texts that went another way at two tokens that are as likely to within what is allowed, and were compared up to
  // there.
  int64_t parted = 0;
  double error = 0, allowed = 0;  // the largest one; the error at a parting is half of what the CPU has between the two
  std::string worst;              // where: "rank 3, token 7"
  std::vector<std::string> wrong;  // what must hold exactly, and does not

  double share() const { return error == 0 ? 0 : error / allowed; }  // NaN and infinity stay
  bool agrees() const { return wrong.empty() && error <= allowed; }
};

// The base model, adapters of three ranks, and JSON under a schema with and without an adapter, as an engine on the
// device serves them in fp32 and bf16: one after another ("alone"), among `others` more requests in one batch ("in
// company"), and with the beginnings of their prompts found in the prefix cache while adapters take turns in too few
// slots ("found prefix"). The CPU's are the texts of fp32, alone. Allowed is rounding, and a multiple of how far the
// CPU is off those itself: in fp32 with weights changed in their last bits, in bf16 as it is.
std::vector<ServingAgreement> compare_serving(Runtime& cpu, Runtime& device, const spec::ModelSpec& model,
                                              int64_t others);

}  // namespace ingot::app
