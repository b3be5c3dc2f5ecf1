// The jobs of tools/gpu_budgets.tsv: those of tools/gpu_check on an H200, and jobs with published times on AMD's GPUs.
#pragma once

#include <string>
#include <vector>

#include "bench/decode.h"
#include "bench/train.h"
#include "tests/bench/job_budget.h"

namespace ingot::bench {

struct GpuJob {
  std::string name;
  GpuModel gpu;
  TrainOptions train{};    // used if its model is not empty
  DecodeOptions decode{};  // used otherwise
};

const std::vector<GpuJob>& gpu_jobs();

// A step of the job on a DryGpu: of training the second, of decoding the first that gives every request a token.
// ErrorKind::resource when the job does not fit.
JobBudget budget_of(const GpuJob& job);

}  // namespace ingot::bench
