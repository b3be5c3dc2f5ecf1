// Sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198): outside attention and MLP a tensor-parallel rank
// has an equal share of the rows of every batch, for norms and the residual. Letters: C ranks; T rows of the batch, of
// which rank r has r T / C .. (r + 1) T / C; N features.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "comm/device_communicator.h"
#include "nn/pass.h"
#include "spec/slice.h"
#include "spec/traffic.h"

namespace ingot::nn {

class RowExchange {
 public:
  // `ranks` works in the compute stream. `bytes`: of the largest matrix [T, N]. `axis`: whose traffic it is.
  RowExchange(std::shared_ptr<comm::DeviceCommunicator> ranks, size_t bytes, spec::Axis axis = spec::Axis::tp);
  // Bytes of make_workspace() for these.
  static size_t workspace_bytes(size_t bytes) { return 2 * bytes; }

  // This rank's, of T = `rows`.
  spec::Range own(int64_t rows) const;

  // all [T, N] receives the rows of every rank, of which own [T / C, N] are this one's.
  void gather(ops::Context& context, const Tensor& all, const Tensor& own);
  // own [T / C, N], f32 or bf16, receives this rank's rows of the sum of the ranks' `all` [T, N], added in fp32 in the
  // order of ranks and rounded once: the bits of nn::sum_over_ranks.
  void sum(ops::Context& context, const Tensor& own, const Tensor& all);

  // What is exchanged is added to `traffic`, which outlives this.
  void set_traffic(spec::Traffic* traffic) { traffic_ = traffic; }
  // While set, nothing is exchanged, and results are zeros: for memory probes.
  void set_local_only(bool local_only) { local_only_ = local_only; }

 private:
  std::shared_ptr<comm::DeviceCommunicator> ranks_;
  comm::DeviceCommunicator::Workspace workspace_;
  spec::Axis axis_;
  void count(spec::Collective collective, const Tensor& all) const {
    if (traffic_ != nullptr) traffic_->add({axis_, collective}, static_cast<int64_t>(all.bytes()));
  }
  spec::Traffic* traffic_ = nullptr;
  bool local_only_ = false;
};

// For layers. With sequence parallelism (TensorParallel::rows) `own` is [T / C, N], this rank's rows of `all` [T, N];
// without it they are the same tensor.

// All rows of `own`, in scratch memory.
Tensor all_rows(Pass& pass, const Tensor& own);
// Memory for all rows of `own`, which has its share of `rows` or all of them: in scratch memory, or `own`.
Tensor memory_of_all_rows(Pass& pass, const Tensor& own, int64_t rows);
// This rank's rows of `all`, in its memory.
Tensor own_rows(const Pass& pass, const Tensor& all);
// `own` receives the sum over pass.tp of `all`. Assigned.
void sum_to_own_rows(Pass& pass, const Tensor& own, const Tensor& all);

// Scratch bytes of all_rows and memory_of_all_rows for all [rows, features], and those of sum_to_own_rows.
size_t all_rows_bytes(int64_t rows, int64_t features, const PassShape& shape);

// A training pass over this rank's rows.
class OwnRowsPass {
 public:
  // Refers to `all`.
  explicit OwnRowsPass(Pass& all);
  Pass& pass() { return own_ ? *own_ : all_; }

 private:
  Pass& all_;
  std::optional<Training> training_;
  std::optional<Pass> own_;
};

}  // namespace ingot::nn
