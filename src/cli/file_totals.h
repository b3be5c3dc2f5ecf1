// Size and type of a model's files.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/tensor_store.h"

namespace ingot::cli {

struct FileTotals {
  std::string dtype;  // type of most elements, in lower case: "bf16", "q4_1"
  uint64_t bytes = 0;
};

FileTotals file_totals(const checkpoint::TensorStore& store);

}  // namespace ingot::cli
