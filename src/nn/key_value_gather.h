// Context parallelism by all-gather of keys and values (Llama 3: arXiv 2407.21783, section 3.3.2): a rank has two
// chunks of the rows of every batch, and computes attention of their queries over the keys and values of all rows, with
// all heads. Letters: C ranks; T rows of a rank, two chunks of T / 2 (spec/context_rows.h); N features.
#pragma once

#include <array>
#include <memory>

#include "nn/context_chunks.h"
#include "nn/row_exchange.h"
#include "spec/model.h"

namespace ingot::nn {

class KeyValueGather {
 public:
  // `ranks` works in the compute stream. `bytes`: of the largest matrix [C T, N].
  KeyValueGather(std::shared_ptr<comm::DeviceCommunicator> ranks, size_t bytes);
  // Of a model's keys, for `tokens` of all ranks, on one of `tp` tensor-parallel ranks.
  static size_t largest_bytes(const spec::ModelSpec& model, int64_t tp, int64_t tokens, DType activation);

  int ranks() const { return ranks_; }
  // The first row of each of this rank's chunks of `rows` = T / 2, among all.
  std::array<int64_t, 2> first_rows(int64_t rows) const { return nn::first_rows(rank_, ranks_, rows); }

  // all [C T, N] receives the rows of every rank, in the order of the batch; own [T, N] are this rank's. f32 or bf16.
  void gather(ops::Context& context, const Tensor& all, const Tensor& own);
  // own [T, N] receives this rank's rows of the sum of the ranks' `all` [C T, N], added in fp32 in the order of ranks
  // and rounded once.
  void sum(ops::Context& context, const Tensor& own, const Tensor& all);

  // Scratch bytes of each, for a matrix [C T, N] of `bytes`.
  static size_t gather_bytes(size_t bytes) { return Arena::footprint(bytes); }
  static size_t sum_bytes(size_t bytes) { return 2 * Arena::footprint(bytes); }

  void set_traffic(spec::Traffic* traffic) { rows_.set_traffic(traffic); }
  // While set, nothing is exchanged, and results are zeros: for memory probes.
  void set_local_only(bool local_only) { rows_.set_local_only(local_only); }

 private:
  int rank_, ranks_;
  RowExchange rows_;  // in the order of ranks
};

}  // namespace ingot::nn
