// Expert parallelism (Lepikhin et al. 2020, arXiv 2006.16668): each rank has some of a mixture's experts, and the rows
// that its tokens have for the others go to the ranks that have these, and come back. Nothing is dropped. Letters: C
// ranks; T tokens of a rank, the same number on each; E experts, of which rank r has r E / C .. (r + 1) E / C; K
// selected experts per token; N = T K rows of this rank's tokens, grouped by expert; M rows that its experts get, at
// most T spec::Experts::max_rows(); W features.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/device_communicator.h"
#include "comm/group.h"
#include "nn/grouped_layer.h"
#include "spec/model_shard.h"
#include "spec/traffic.h"

namespace ingot::nn {

class ExpertExchange {
 public:
  // `ranks` works in the compute stream, for the ranks of `group`. `bytes`: largest_bytes().
  ExpertExchange(comm::Group group, std::shared_ptr<comm::DeviceCommunicator> ranks, size_t bytes);
  // Of what a rank with these parts of the model sends and receives at once, for `tokens` of each rank.
  static size_t largest_bytes(const spec::ModelSpec& model, std::span<const spec::ModelShard> shards, int64_t tokens,
                              DType activation);

  int ranks() const { return ranks_->size(); }
  int rank() const { return ranks_->rank(); }

  // The M rows of this rank's experts, first to last, each expert's ordered by rank and token: that of token t of rank
  // r is number r T + t.
  struct Rows {
    ExpertGroups groups;                // on the device, in scratch memory
    std::vector<int64_t> offsets;       // groups.offsets
    std::vector<int32_t> token_of_row;  // groups.token_of_row
    int64_t count() const { return offsets.back(); }

    std::vector<int64_t> sent, received;  // rows, by rank
    Tensor place;                         // [M] i32: of each row, where it is in the order of ranks
    Tensor row_at;                        // [M] i32: the inverse
  };
  // offsets [E + 1], token_of_row [N] i32: of this rank's rows, on the device, for which the host waits.
  Rows rows(ops::Context& context, const Tensor& offsets, const Tensor& token_of_row, int64_t tokens);
  // Scratch bytes of rows(); and of a dispatch or combine of rows as wide as the residual.
  static size_t rows_bytes(const spec::Experts& spec, int64_t tokens);
  static size_t exchange_bytes(const spec::Experts& spec, int64_t hidden, const PassShape& shape);

  // received [M, W] from what all ranks pass as sent [N, W].
  void dispatch(ops::Context& context, const Tensor& received, const Tensor& sent, const Rows& rows);
  // The inverse: back [N, W] from what all ranks pass as results [M, W].
  void combine(ops::Context& context, const Tensor& back, const Tensor& results, const Rows& rows);
  // all [C T] receives own [T] of each rank.
  void gather(ops::Context& context, const Tensor& all, const Tensor& own);

  // What is communicated is added to `traffic`, which outlives this: a row that is sent or comes back, for its token's
  // rank.
  void set_traffic(spec::Traffic* traffic) { traffic_ = traffic; }
  // While set, nothing is communicated, this rank's experts get as many rows as they can, and results are zeros: for
  // memory probes.
  void set_local_only(bool local_only) { local_only_ = local_only; }

 private:
  void set_counts(Rows& rows, std::span<const int64_t> counts);
  void set_most(Rows& rows, int64_t experts, int64_t per_token);
  void count(spec::Collective collective, const Tensor& tensor) const {
    if (traffic_ != nullptr) traffic_->add({spec::Axis::ep, collective}, static_cast<int64_t>(tensor.bytes()));
  }

  comm::Group group_;
  std::shared_ptr<comm::DeviceCommunicator> ranks_;
  comm::DeviceCommunicator::Workspace workspace_;
  spec::Traffic* traffic_ = nullptr;
  bool local_only_ = false;
};

}  // namespace ingot::nn
