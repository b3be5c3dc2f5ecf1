#include "nn/head_exchange.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/columns.h"
#include "ops/sum_parts.h"

namespace ingot::nn {

HeadExchange::HeadExchange(std::shared_ptr<comm::DeviceCommunicator> ranks, size_t bytes)
    : ranks_(std::move(ranks)), workspace_(ranks_->make_workspace(workspace_bytes(bytes))) {}

size_t HeadExchange::largest_bytes(const spec::ModelSpec& model, int64_t tp, int64_t tokens, DType activation) {
  int64_t width = 0;
  for (const spec::LayerSpec& layer : model.layers) width = std::max(width, layer.attention.query_width() / tp);
  return static_cast<size_t>(tokens * width) * size_of(activation);
}

void HeadExchange::exchange(const Tensor& out, const Tensor& in) {
  const auto ranks = static_cast<size_t>(ranks_->size());
  const std::vector<size_t> sections(ranks, in.bytes() / ranks);
  ranks_->all_to_all(workspace_, out.data, sections, in.data, sections)->wait();
  if (traffic_ != nullptr)
    traffic_->add({spec::Axis::cp, spec::Collective::all_to_all}, static_cast<int64_t>(in.bytes()));
}

void HeadExchange::to_heads(ops::Context& context, const Tensor& out, const Tensor& x, int64_t heads) {
  if (local_only_) return context.device.fill_zero(out.data, out.bytes());
  const Arena::Scope scope(context.scratch);
  const int64_t rows = x.shape[0], width = out.shape[1], head_dim = x.shape[1] / heads;
  const Tensor sent = context.scratch.allocate(x.dtype, out.shape);
  for (int64_t to = 0; to < ranks(); ++to) {
    const int64_t head = to * heads / ranks();
    ops::gather_columns(context, sent.slice(to * rows, (to + 1) * rows), x,
                        {.width = width, .offset = head * head_dim});
  }
  exchange(out, sent);
}

void HeadExchange::to_rows(ops::Context& context, const Tensor& out, const Tensor& x, int64_t heads) {
  if (local_only_) return context.device.fill_zero(out.data, out.bytes());
  const Arena::Scope scope(context.scratch);
  const int64_t rows = out.shape[0], width = x.shape[1], head_dim = out.shape[1] / heads;
  const Tensor received = context.scratch.allocate(x.dtype, x.shape);
  exchange(received, x);
  const int64_t sharers = heads % ranks() == 0 ? 1 : ranks() / heads;  // ranks with the same head
  const Tensor sum = sharers > 1 ? context.scratch.allocate(x.dtype, Shape{rows, width}) : Tensor{};
  for (int64_t from = 0; from < ranks(); from += sharers) {
    const Tensor parts = received.slice(from * rows, (from + sharers) * rows);
    if (sum) {
      const int64_t elements = sum.elements();
      ops::sum_parts(context, sum.reshape(Shape{elements}), parts.reshape(Shape{sharers, elements}), false);
    }
    const int64_t head = from * heads / ranks();
    ops::scatter_columns(context, out, sum ? sum : parts, {.width = width, .offset = head * head_dim});
  }
}

}  // namespace ingot::nn
