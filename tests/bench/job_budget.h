// What a step of a job asks of a GPU, and the committed table of it, tools/gpu_budgets.tsv. The table's lines are
//   "job" NAME GPU TARGET TOKENS MEMORY
//   OP KERNEL SHAPE THREADS SHARED LAUNCHES BYTES FLOPS
// with tabs between fields: a job's line, then its rows.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/bench/dry_gpu.h"

namespace ingot::bench {

// The launches of a step that are alike.
struct BudgetRow {
  std::string op, kernel, shape;  // as in Launch
  int threads = 0;
  size_t shared = 0;
  int64_t launches = 0;
  double bytes = 0, flops = 0;  // of all of them

  auto key() const { return std::tie(op, kernel, shape, threads, shared); }
  bool is_copy() const { return kernel == copy_to_host || kernel == copy_to_device; }
};

struct JobBudget {
  std::string job, gpu, target;
  int64_t tokens = 0;             // a step
  double memory = 0;              // bytes, the most that was allocated at once
  std::vector<BudgetRow> rows{};  // sorted by key()

  int64_t launches() const;  // of kernels and libraries
  int64_t copies() const;    // between host and device
  double bytes() const;
  double flops() const;
};

std::vector<BudgetRow> budget_rows(std::span<const Launch> launches);

using BudgetTable = std::map<std::string, JobBudget>;  // by job
std::string text_of(const BudgetTable& table);
// ErrorKind::corrupt for lines that text_of does not write.
BudgetTable read_budgets(const std::string& text);

// In what respects `now` is worse than `then`, a line each; empty: in none.
std::string worse(const JobBudget& now, const JobBudget& then);

}  // namespace ingot::bench
