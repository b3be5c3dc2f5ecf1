#include "nn/expert_exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/moe.h"

namespace ingot::nn {

namespace {

template <class T>
Tensor upload(ops::Context& context, DType dtype, const std::vector<T>& values) {
  const Tensor tensor = context.scratch.allocate(dtype, Shape{std::ssize(values)});
  if (!values.empty()) context.device.copy_from_host(tensor.data, values.data(), tensor.bytes());
  return tensor;
}

std::vector<int32_t> download(ops::Context& context, const Tensor& tensor) {
  std::vector<int32_t> values(static_cast<size_t>(tensor.elements()));
  if (!values.empty()) context.device.copy_to_host(values.data(), tensor.data, tensor.bytes());
  return values;
}

std::vector<size_t> bytes_of(const std::vector<int64_t>& rows, size_t each) {
  std::vector<size_t> bytes;
  for (const int64_t count : rows) bytes.push_back(static_cast<size_t>(count) * each);
  return bytes;
}

size_t row_bytes(const Tensor& matrix) { return static_cast<size_t>(matrix.shape[1]) * size_of(matrix.dtype); }

}  // namespace

ExpertExchange::ExpertExchange(comm::Group group, std::shared_ptr<comm::DeviceCommunicator> ranks, size_t bytes)
    : group_(std::move(group)), ranks_(std::move(ranks)), workspace_(ranks_->make_workspace(bytes)) {}

size_t ExpertExchange::largest_bytes(const spec::ModelSpec& model, std::span<const spec::ModelShard> shards,
                                     int64_t tokens, DType activation) {
  int64_t rows = 0;
  for (const spec::ModelShard& shard : shards) {
    for (const spec::LayerSpec& layer : spec::sizes_of(model, shard).layers) {
      const spec::Experts* experts = spec::experts_of(layer.mlp);
      if (experts != nullptr) rows = std::max(rows, tokens * (experts->per_token + experts->max_rows()));
    }
  }
  return static_cast<size_t>(rows * model.hidden) * size_of(activation);
}

size_t ExpertExchange::rows_bytes(const spec::Experts& spec, int64_t tokens) {
  const size_t index = Arena::footprint(DType::i32, Shape{tokens * spec.max_rows()});
  return 3 * index + Arena::footprint(DType::i32, Shape{spec.own() + 1});
}

size_t ExpertExchange::exchange_bytes(const spec::Experts& spec, int64_t hidden, const PassShape& shape) {
  return shape.matrix_bytes(shape.tokens * spec.max_rows(), hidden);
}

// `counts` [C * E]: by rank, and the expert that its rows are of.
void ExpertExchange::set_counts(Rows& rows, std::span<const int64_t> counts) {
  const auto ranks = static_cast<size_t>(ranks_->size()), own = counts.size() / ranks / ranks;
  const auto of = [&](size_t from, size_t to) { return counts.subspan((from * ranks + to) * own, own); };
  const auto sum = [](std::span<const int64_t> values) {
    return std::accumulate(values.begin(), values.end(), int64_t{0});
  };
  const auto me = static_cast<size_t>(rank());
  rows.offsets.assign(own + 1, 0);
  for (size_t rank = 0; rank < ranks; ++rank) {
    rows.sent.push_back(sum(of(me, rank)));
    rows.received.push_back(sum(of(rank, me)));
    for (size_t e = 0; e < own; ++e) rows.offsets[e + 1] += of(rank, me)[e];
  }
  std::partial_sum(rows.offsets.begin(), rows.offsets.end(), rows.offsets.begin());
}

// Every token of every rank selects the same experts of this one.
void ExpertExchange::set_most(Rows& rows, int64_t experts, int64_t per_token) {
  const int64_t own = experts / ranks(), selected = std::min(per_token, own), all = rows.groups.tokens;
  rows.offsets.assign(1, 0);
  for (int64_t e = 0; e < own; ++e) rows.offsets.push_back(std::min(e + 1, selected) * all);
  for (int64_t row = 0; row < selected * all; ++row) rows.token_of_row.push_back(static_cast<int32_t>(row % all));
}

ExpertExchange::Rows ExpertExchange::rows(ops::Context& context, const Tensor& offsets, const Tensor& token_of_row,
                                          int64_t tokens) {
  Rows rows;
  rows.groups.tokens = ranks() * tokens;
  const int64_t experts = offsets.elements() - 1;
  std::vector<int32_t> place, row_at;
  if (local_only_) {
    set_most(rows, experts, token_of_row.elements() / tokens);
    place.resize(static_cast<size_t>(rows.count()));
    row_at.resize(place.size());
  } else {
    const std::vector<int32_t> ends = download(context, offsets);
    std::vector<int64_t> own, counts;
    for (size_t e = 1; e < ends.size(); ++e) own.push_back(ends[e] - ends[e - 1]);
    for (const std::vector<int64_t>& of_rank : group_.gather(std::span<const int64_t>(own)))
      counts.insert(counts.end(), of_rank.begin(), of_rank.end());
    set_counts(rows, counts);

    const Arena::Scope scope(context.scratch);
    const Tensor by_rank = context.scratch.allocate(DType::i32, Shape{rows.count()});
    ranks_
        ->all_to_all(workspace_, by_rank.data, bytes_of(rows.received, sizeof(int32_t)), token_of_row.data,
                     bytes_of(rows.sent, sizeof(int32_t)))
        ->wait();
    count(spec::Collective::all_to_all, token_of_row);
    const std::vector<int32_t> received = download(context, by_rank);
    // The next row of each rank, in the order of ranks.
    std::vector<int64_t> next(rows.received.size());
    std::exclusive_scan(rows.received.begin(), rows.received.end(), next.begin(), int64_t{0});
    row_at.resize(received.size());
    for (int64_t e = rank() * experts / ranks(); e < (rank() + 1) * experts / ranks(); ++e) {
      for (size_t from = 0; from < next.size(); ++from) {
        for (int64_t row = counts[from * static_cast<size_t>(experts) + static_cast<size_t>(e)]; row > 0; --row) {
          const auto at = static_cast<size_t>(next[from]++);
          row_at[at] = static_cast<int32_t>(place.size());
          place.push_back(static_cast<int32_t>(at));
          rows.token_of_row.push_back(static_cast<int32_t>(static_cast<int64_t>(from) * tokens) + received[at]);
        }
      }
    }
  }
  rows.groups.offsets = upload(context, DType::i32, std::vector<int32_t>(rows.offsets.begin(), rows.offsets.end()));
  rows.groups.token_of_row = upload(context, DType::i32, rows.token_of_row);
  rows.place = upload(context, DType::i32, place);
  rows.row_at = upload(context, DType::i32, row_at);
  return rows;
}

void ExpertExchange::dispatch(ops::Context& context, const Tensor& received, const Tensor& sent, const Rows& rows) {
  if (local_only_) return context.device.fill_zero(received.data, received.bytes());
  const Arena::Scope scope(context.scratch);
  const Tensor by_rank = context.scratch.allocate(received.dtype, received.shape);
  const size_t each = row_bytes(sent);
  ranks_->all_to_all(workspace_, by_rank.data, bytes_of(rows.received, each), sent.data, bytes_of(rows.sent, each))
      ->wait();
  count(spec::Collective::all_to_all, sent);
  if (rows.count() > 0) ops::gather_rows(context, received, by_rank, rows.place);
}

void ExpertExchange::combine(ops::Context& context, const Tensor& back, const Tensor& results, const Rows& rows) {
  if (local_only_) return context.device.fill_zero(back.data, back.bytes());
  const Arena::Scope scope(context.scratch);
  const Tensor by_rank = context.scratch.allocate(results.dtype, results.shape);
  if (rows.count() > 0) ops::gather_rows(context, by_rank, results, rows.row_at);
  const size_t each = row_bytes(back);
  ranks_->all_to_all(workspace_, back.data, bytes_of(rows.sent, each), by_rank.data, bytes_of(rows.received, each))
      ->wait();
  count(spec::Collective::all_to_all, back);
}

void ExpertExchange::gather(ops::Context& context, const Tensor& all, const Tensor& own) {
  if (local_only_) return context.device.fill_zero(all.data, all.bytes());
  const std::vector<size_t> bytes(static_cast<size_t>(ranks()), own.bytes());
  ranks_->all_gather(workspace_, all.data, own.data, bytes)->wait();
  count(spec::Collective::all_gather, all);
}

}  // namespace ingot::nn
