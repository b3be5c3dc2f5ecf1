#include "nn/key_value_gather.h"

#include <algorithm>
#include <utility>

#include "ops/columns.h"
#include "spec/context_rows.h"

namespace ingot::nn {

namespace {

enum class Order { batch, ranks };

// `to` receives the chunks of `from` [C T, N], which are in the other order.
void reorder(ops::Context& context, const Tensor& to, const Tensor& from, int64_t ranks, Order order) {
  const int64_t width = from.shape[1];
  int64_t row = 0;  // in the order of ranks
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (const spec::Range& chunk : spec::context_rows(spec::CpCommType::allgather, rank, ranks, from.shape[0])) {
      const spec::Range by_rank{row, row + chunk.count()};
      const auto& [target, source] = order == Order::batch ? std::pair(chunk, by_rank) : std::pair(by_rank, chunk);
      ops::gather_columns(context, to.slice(target.begin, target.end), from.slice(source.begin, source.end),
                          {.width = width});
      row = by_rank.end;
    }
  }
}

}  // namespace

KeyValueGather::KeyValueGather(std::shared_ptr<comm::DeviceCommunicator> ranks, size_t bytes)
    : rank_(ranks->rank()), ranks_(ranks->size()), rows_(std::move(ranks), bytes, spec::Axis::cp) {}

size_t KeyValueGather::largest_bytes(const spec::ModelSpec& model, int64_t tp, int64_t tokens, DType activation) {
  int64_t width = 0;
  for (const spec::LayerSpec& layer : model.layers) width = std::max(width, layer.attention.split(tp).key_width());
  return static_cast<size_t>(tokens * width) * size_of(activation);
}

void KeyValueGather::gather(ops::Context& context, const Tensor& all, const Tensor& own) {
  const Arena::Scope scope(context.scratch);
  const Tensor by_rank = context.scratch.allocate(all.dtype, all.shape);
  rows_.gather(context, by_rank, own);
  reorder(context, all, by_rank, ranks_, Order::batch);
}

void KeyValueGather::sum(ops::Context& context, const Tensor& own, const Tensor& all) {
  const Arena::Scope scope(context.scratch);
  const Tensor by_rank = context.scratch.allocate(all.dtype, all.shape);
  reorder(context, by_rank, all, ranks_, Order::ranks);
  rows_.sum(context, own, by_rank);
}

}  // namespace ingot::nn
