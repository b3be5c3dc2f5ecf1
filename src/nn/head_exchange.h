// Context parallelism by exchange of heads (DeepSpeed-Ulysses: Jacobs et al. 2023, arXiv 2309.14509): a rank has some
// rows of every batch, and computes attention over all of its rows for a share of the heads. Letters: C ranks; T rows
// of a rank, the same number on each: rank r has rows r T .. (r + 1) T of the batch; D head size; N heads, h of them on
// each rank. Either C divides N, and h = N / C; or N divides C, h = 1, and C / N neighbours have the same head.
#pragma once

#include <memory>

#include "comm/device_communicator.h"
#include "ops/context.h"
#include "spec/model.h"
#include "spec/traffic.h"
#include "tensor/tensor.h"

namespace ingot::nn {

class HeadExchange {
 public:
  // `ranks` works in the compute stream. `bytes`: of the largest matrix [C T, h D].
  HeadExchange(std::shared_ptr<comm::DeviceCommunicator> ranks, size_t bytes);
  // Those of a model, for `tokens` of a rank, one of `tp` tensor-parallel ones. No matrix of keys is larger than that
  // of queries, of which a rank has at least one head.
  static size_t largest_bytes(const spec::ModelSpec& model, int64_t tp, int64_t tokens, DType activation);
  // Bytes of make_workspace() for these.
  static size_t workspace_bytes(size_t bytes) { return 2 * bytes; }

  int rank() const { return ranks_->rank(); }
  int ranks() const { return ranks_->size(); }
  // h, of N = `heads`.
  int64_t own_heads(int64_t heads) const { return heads % ranks() == 0 ? heads / ranks() : 1; }

  // out [C T, h D] receives this rank's heads of all rows from x [T, N D], f32 or bf16. They may have the same memory
  // if C divides N = `heads`.
  void to_heads(ops::Context& context, const Tensor& out, const Tensor& x, int64_t heads);
  // The inverse: out [T, N D] from x [C T, h D]; of what several ranks have of one head, the sum, added in fp32 in the
  // order of ranks. Memory as above.
  void to_rows(ops::Context& context, const Tensor& out, const Tensor& x, int64_t heads);

  // Scratch bytes of each, for a matrix [C T, h D] of `bytes`.
  static size_t scratch_bytes(size_t bytes, int64_t ranks, int64_t heads) {
    return bytes + (heads % ranks == 0 ? 0 : Arena::footprint(bytes / static_cast<size_t>(ranks)));
  }

  // What is exchanged is added to `traffic`, which outlives this.
  void set_traffic(spec::Traffic* traffic) { traffic_ = traffic; }
  // While set, nothing is exchanged, and results are zeros: for memory probes.
  void set_local_only(bool local_only) { local_only_ = local_only; }

 private:
  void exchange(const Tensor& out, const Tensor& in);

  std::shared_ptr<comm::DeviceCommunicator> ranks_;
  comm::DeviceCommunicator::Workspace workspace_;
  spec::Traffic* traffic_ = nullptr;
  bool local_only_ = false;
};

}  // namespace ingot::nn
