// The llama family's parameter table: llama 1 to 3.x, SmolLM2, and what else has `model_type: "llama"`.
#pragma once

#include <vector>

#include "spec/model.h"

namespace ingot::spec {

std::vector<ParamSpec> llama_parameters(const ModelSpec& model);

}  // namespace ingot::spec
