// What a model's files come to.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/tensor_store.h"

namespace ingot::app {

struct FileTotals {
  std::string dtype;  // that most elements have, in lower case: "bf16", "q4_1"
  uint64_t bytes = 0;
};

FileTotals file_totals(const checkpoint::TensorStore& store);

}  // namespace ingot::app
