#include "nn/row_exchange.h"

#include <utility>
#include <vector>

#include "nn/transfer.h"
#include "ops/sum_parts.h"

namespace ingot::nn {

RowExchange::RowExchange(std::shared_ptr<comm::DeviceCommunicator> ranks, size_t bytes, spec::Axis axis)
    : ranks_(std::move(ranks)), workspace_(ranks_->make_workspace(workspace_bytes(bytes))), axis_(axis) {}

spec::Range RowExchange::own(int64_t rows) const {
  const int64_t each = rows / ranks_->size();
  return {ranks_->rank() * each, (ranks_->rank() + 1) * each};
}

void RowExchange::gather(ops::Context& context, const Tensor& all, const Tensor& own) {
  if (local_only_) return context.device.fill_zero(all.data, all.bytes());
  const std::vector<size_t> bytes(static_cast<size_t>(ranks_->size()), own.bytes());
  ranks_->all_gather(workspace_, all.data, own.data, bytes)->wait();
  count(spec::Collective::all_gather, all);
}

void RowExchange::sum(ops::Context& context, const Tensor& own, const Tensor& all) {
  if (local_only_) return context.device.fill_zero(own.data, own.bytes());
  const Arena::Scope scope(context.scratch);
  const int64_t ranks = ranks_->size();
  const Tensor parts = context.scratch.allocate(all.dtype, Shape{ranks, own.elements()});
  const std::vector<size_t> bytes(static_cast<size_t>(ranks), own.bytes());
  ranks_->all_to_all(workspace_, parts.data, bytes, all.data, bytes)->wait();
  count(spec::Collective::reduce_scatter, all);
  ops::sum_parts(context, own.reshape(Shape{own.elements()}), parts, false);
}

Tensor all_rows(Pass& pass, const Tensor& own) {
  if (pass.tp.rows == nullptr) return own;
  const Tensor all = pass.ops.scratch.allocate(own.dtype, Shape{pass.batch.tokens(), own.shape[1]});
  pass.tp.rows->gather(pass.ops, all, own);
  return all;
}

Tensor memory_of_all_rows(Pass& pass, const Tensor& own, int64_t rows) {
  if (!own || own.shape[0] == rows) return own;
  return pass.ops.scratch.allocate(own.dtype, Shape{rows, own.shape[1]});
}

Tensor own_rows(const Pass& pass, const Tensor& all) {
  if (pass.tp.rows == nullptr) return all;
  const auto [begin, end] = pass.tp.rows->own(all.shape[0]);
  return all.slice(begin, end);
}

void sum_to_own_rows(Pass& pass, const Tensor& own, const Tensor& all) {
  if (own.data == all.data) return sum_over_ranks(pass, own);
  pass.tp.rows->sum(pass.ops, own, all);
}

size_t all_rows_bytes(int64_t rows, int64_t features, const PassShape& shape) {
  return shape.sequence_parallel ? shape.matrix_bytes(rows, features) : 0;
}

OwnRowsPass::OwnRowsPass(Pass& all) : all_(all) {
  if (all.tp.rows == nullptr) return;
  const auto [begin, end] = all.tp.rows->own(all.batch.tokens());
  own_.emplace(all);
  own_->training = &training_.emplace(all.training->rows(begin, end));
}

}  // namespace ingot::nn
