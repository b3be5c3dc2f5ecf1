// The ranks that compute one model together (--tp, --pp), for commands that open a model.
#pragma once

#include "base/function_ref.h"
#include "runtime/session.h"

namespace ingot::cli {

// Seconds that a rank waits for another.
constexpr double rank_timeout_s = 600;

// ErrorKind::usage unless options.tp and options.pp are at least 1.
void check_ranks(const runtime::ModelOptions& options);

// Calls work(rank) for each of options.tp x options.pp ranks, and returns the result of rank 0. They are threads of
// this process, or under mpirun or srun this process is one of them. A single rank runs on the caller's thread. When a
// rank fails, all end with its error. Other errors: usage when a launcher has started another number of processes;
// those of open_runtime.
int on_model_ranks(const runtime::ModelOptions& options, FunctionRef<int(const runtime::ModelRank&)> work,
                   double timeout_s = rank_timeout_s);

// Computes this rank's share of what rank 0's engine runs (infer/follower.h), and returns 0. Not on rank 0.
int follow_engine(const runtime::Session& session);

// Bytes that are available to each rank: the least of them. Ranks on CPUs are taken to be on one machine. Collective.
size_t memory_for_each(const runtime::Session& session);

}  // namespace ingot::cli
