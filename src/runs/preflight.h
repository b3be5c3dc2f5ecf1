// A check of the ranks before a run: where they are, how fast each computes, and how fast they communicate along each
// axis of the layout and between neighbours. Takes seconds.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runs/machine_file.h"
#include "train/recipe.h"

namespace ingot::runs {

struct PreflightRank {
  std::string host, device, cpus;  // "node7", "cuda:0", "0-7"
  double flops = 0;                // FLOP/s of matrix products in bf16, while all ranks compute
  std::string place;               // where its threads are bound, and its network adapters (describe_place)
};

// The groups of ranks along an axis, which communicate at the same time, as in a run.
struct PreflightAxis {
  std::string name;  // "dp", or "shard" and "replicas"; "pp", "tp"
  int ranks = 0;     // of a group
  bool across_nodes = false;
  std::string by;        // "NCCL 2.28.3", "host memory"
  double latency_s = 0;  // of an all-reduce of 8 bytes, in the slowest group
  // Of an all-reduce of `bytes`: 2 (n - 1) / n times its bytes a second, as NCCL's tests define bus bandwidth.
  double bus_bytes_per_s = 0;  // of the slowest group
  double median_bytes_per_s = 0;
  int slowest = 0;  // a rank of the slowest group
  size_t bytes = 0;
};

// Messages between ranks whose numbers follow each other, one pair at a time on a node.
struct PreflightLink {
  int from = 0;  // to from + 1
  bool across_nodes = false;
  double bytes_per_s = 0;  // each way
};

struct Preflight {
  std::vector<PreflightRank> ranks;
  std::vector<PreflightAxis> axes;
  std::vector<PreflightLink> links;
};

// Starts the ranks as the recipe's run would, and calls report(result) on the first one. Errors: those of run_ranks,
// and of what ranks open.
void check_ranks(train::Recipe recipe, const std::function<void(const Preflight&)>& report);

// Whether a check found something wrong: one line, and what to do about it (empty if nothing is wrong).
struct PreflightFinding {
  std::string check, message, advice;
};
// `machine`: what the links should reach.
std::vector<PreflightFinding> findings_of(const Preflight& result, const std::optional<MachineFile>& machine);

}  // namespace ingot::runs
