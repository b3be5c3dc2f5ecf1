#include "train/gradient_sync.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "comm/host_communicator.h"
#include "nn/transfer.h"
#include "ops/adamw_bytes.h"
#include "ops/sum_parts.h"

namespace ingot::train {

namespace {

comm::Number number_of(const Tensor& tensor) {
  return tensor.dtype == DType::i64 ? comm::Number::i64 : comm::Number::f32;
}

// Where a tensor's gradient is summed.
const Tensor& total_of(const TrainedParameter& t) { return t.sum ? t.sum : t.gradient; }

size_t section_start(const std::vector<size_t>& sections, int rank) {
  return std::accumulate(sections.begin(), sections.begin() + rank, size_t{0});
}

}  // namespace

GradientSync::GradientSync(ops::Context& context, OptimizerState& optimizer_state, const comm::Grid& grid)
    : context_(context),
      device_(context.device),
      optimizer_state_(optimizer_state),
      ranks_(grid.dp),
      shard_(grid.shard),
      expert_shard_(grid.expert_shard),
      stages_(grid.pp),
      tp_(grid.tp),
      model_(grid.model),
      uses_(grid.on_device.ends ? grid.on_device.ends : comm::through_host(device_, grid.ends)) {
  const ShardSpec& share = optimizer_state.share();
  const auto communicator = [&](const std::shared_ptr<comm::DeviceCommunicator>& library, const comm::Group& ranks) {
    if (ranks.size() == 1) return std::shared_ptr<comm::DeviceCommunicator>();
    return library ? library : comm::through_host(device_, ranks);
  };
  const auto replicas = communicator(grid.on_device.replicas, grid.replicas);
  const auto first_over = [&](std::shared_ptr<comm::DeviceCommunicator> shard) {
    return shard ? Reduction{std::move(shard), replicas} : Reduction{replicas, nullptr, spec::Axis::replicas};
  };
  whole_ = first_over(communicator(grid.on_device.shard, grid.shard));
  if (share.ep() > 1) divided_ = first_over(communicator(grid.on_device.expert_shard, grid.expert_shard));
  // Once a step, like all that crosses shard groups.
  if (every_micro_batch() && divided_.axis == spec::Axis::replicas) divided_ = {nullptr, replicas};
  if (share.rank != shard_.rank() || share.ranks != shard_.size() || share.replica != grid.replicas.rank() ||
      share.replicas != grid.replicas.size() || share.stage() != stages_.rank() || share.stages() != stages_.size() ||
      share.tp_rank() != tp_.rank() || share.tp() != tp_.size() || share.ep_rank() != grid.ep.rank() ||
      share.ep() != grid.ep.size()) {
    throw_error(
        ErrorKind::internal,
        "optimizer state is that of rank {} of {}, replica {} of {}, stage {} of {}, tensor-parallel rank {} of {} and "
        "expert-parallel rank {} of {}, not {} of {}, {} of {}, {} of {}, {} of {}, {} of {}",
        share.rank, share.ranks, share.replica, share.replicas, share.stage(), share.stages(), share.tp_rank(),
        share.tp(), share.ep_rank(), share.ep(), shard_.rank(), shard_.size(), grid.replicas.rank(),
        grid.replicas.size(), stages_.rank(), stages_.size(), tp_.rank(), tp_.size(), grid.ep.rank(), grid.ep.size());
  }
  if (optimizer_state.ranges() && tp_.size() > 1 && share.sum_slices == 1)
    throw_error(ErrorKind::internal, "fixed-point sums over {} tensor-parallel ranks", tp_.size());
  if (share.sum_slices > 1 && (!optimizer_state.ranges() || share.sum_slices % tp_.size() != 0)) {
    throw_error(ErrorKind::internal, "sums in {} slices over {} tensor-parallel ranks {} fixed-point sums",
                share.sum_slices, tp_.size(), optimizer_state.ranges() ? "with" : "without");
  }
  if (optimizer_state.ranges()) largest_.resize(optimizer_state.num_trainable());
  for (const Bucket& bucket : optimizer_state.buckets()) {
    if (bucket.split)
      uses_workspace_ = uses_->make_workspace(total_of(optimizer_state.tensors()[*bucket.split]).bytes());
  }
  if (alone()) return;
  for (const Bucket& bucket : optimizer_state.buckets()) {
    BucketTransfer& transfer = transfers_.emplace_back();
    const auto& [between, across, axis] = reduction(bucket.divided);
    if (between) transfer.workspace = between->make_workspace(bucket.memory.bytes());
    if (across) transfer.across = across->make_workspace(section_of(bucket).bytes());
  }
}

void GradientSync::begin_step() {
  std::fill(largest_.begin(), largest_.end(), 0.0F);
  for (BucketTransfer& transfer : transfers_) transfer.has_sum = false;
}

// Fixed-point sums of norms over heads. An adapter's have no parts where sums are taken in slices: its low-rank
// products are summed over the ranks before they are used.
void GradientSync::sum_partial_fixed(const Bucket& bucket) {
  if (optimizer_state_.adapter() != nullptr) return;
  for (size_t i = bucket.first; i < bucket.last; ++i) {
    const TrainedParameter& t = optimizer_state_.tensors()[i];
    if (t.placement != spec::TensorPlacement::partial) continue;
    std::vector<int64_t> sums(static_cast<size_t>(t.sum.elements()));
    device_.copy_to_host(sums.data(), t.sum.data, t.sum.bytes());
    tp_.all_reduce(std::span(sums), comm::ReduceOp::sum);
    count(spec::Axis::tp, spec::Collective::all_reduce, t.sum.bytes());
    device_.copy_from_host(t.sum.data, sums.data(), t.sum.bytes());
  }
}

void GradientSync::sum_partial(const Bucket& bucket) {
  if (optimizer_state_.ranges()) return sum_partial_fixed(bucket);
  const auto for_partial = [&](auto fn) {
    size_t at = 0;
    for (size_t i = bucket.first; i < bucket.last; ++i) {
      const TrainedParameter& t = optimizer_state_.tensors()[i];
      if (t.placement != spec::TensorPlacement::partial) continue;
      fn(t.gradient.reshape(Shape{t.gradient.elements()}), at);
      at += static_cast<size_t>(t.gradient.elements());
    }
    return at;
  };
  for_partial([&](const Tensor& x, size_t) { count(spec::Axis::tp, spec::Collective::all_reduce, x.bytes()); });
  if (tp_sum_ != nullptr) {
    for_partial([&](const Tensor& x, size_t) { tp_sum_->sum(context_, x); });
    return;
  }
  std::vector<float> sums(for_partial([](const Tensor&, size_t) {}));
  if (sums.empty()) return;
  for_partial([&](const Tensor& x, size_t at) { device_.copy_to_host(sums.data() + at, x.data, x.bytes()); });
  tp_.all_reduce(std::span(sums), comm::ReduceOp::sum);
  for_partial([&](const Tensor& x, size_t at) { device_.copy_from_host(x.data, sums.data() + at, x.bytes()); });
}

// Rows of keys and values that several tensor-parallel ranks have. There are none with fixed-point sums.
void GradientSync::sum_copied(const Bucket& bucket) {
  for (size_t i = bucket.first; i < bucket.last; ++i) {
    const TrainedParameter& t = optimizer_state_.tensors()[i];
    if (t.copied.ranks == 1) continue;
    const int64_t elements = t.gradient.elements(), begin = t.copied.begin * t.slice.columns.count();
    const Tensor rows = t.gradient.reshape(Shape{elements}).slice(begin, elements);
    const auto ranks = static_cast<int>(t.copied.ranks);
    count(spec::Axis::tp, spec::Collective::all_gather, rows.bytes() * static_cast<size_t>(tp_.size()));
    if (tp_sum_ != nullptr) {
      tp_sum_->sum_neighbours(context_, rows, ranks);
    } else {
      nn::sum_neighbours(device_, tp_, rows, ranks);
    }
  }
}

void GradientSync::begin(size_t b, bool empty) {
  const Bucket& bucket = optimizer_state_.buckets()[b];
  if (tp_.size() > 1 && !local_only_ && !empty) {
    sum_partial(bucket);
    sum_copied(bucket);
  }
  if (alone()) return;
  const Tensor& memory = bucket.memory;
  if (empty) device_.fill_zero(memory.data, memory.bytes());
  BucketTransfer& transfer = transfers_[b];
  const Reduction& ranks = reduction(bucket.divided);
  // Ranks that divide nothing of this bucket have the same section of it: all.
  const bool reduces_all = optimizer_state_.share().zero_stage() == 0 || bucket.sections.size() == 1;
  if (ranks.between) {
    if (log_ != nullptr) log_->begin(Action::reduce, static_cast<int64_t>(b));
    count(ranks.axis, reduces_all ? spec::Collective::all_reduce : spec::Collective::reduce_scatter, memory.bytes());
  }
  if (ranks.between && reduces_all) {
    transfer.operation =
        ranks.between->all_reduce(transfer.workspace, memory.data, static_cast<size_t>(memory.elements()),
                                  number_of(memory), comm::ReduceOp::sum);
  } else if (ranks.between) {
    transfer.operation = ranks.between->reduce_scatter(transfer.workspace, memory.data, bucket.sections,
                                                       number_of(memory), comm::ReduceOp::sum);
  }
  if (!every_micro_batch()) return in_flight_.push_back(b);
  accumulate_pending();
  pending_bucket_ = b;
  if (b > 0 && optimizer_state_.buckets()[b - 1].memory.data == memory.data) accumulate_pending();  // shared
}

void GradientSync::wait(size_t b) {
  if (!transfers_[b].operation) return;
  std::exchange(transfers_[b].operation, nullptr)->wait();
  if (log_ != nullptr) log_->end(Action::reduce, static_cast<int64_t>(b));
}

// Adds a micro-batch's total to the step's.
void GradientSync::accumulate_pending() {
  if (!pending_bucket_) return;
  const size_t b = *std::exchange(pending_bucket_, std::nullopt);
  const Bucket& bucket = optimizer_state_.buckets()[b];
  wait(b);
  const Tensor total = section_of(bucket);
  ops::sum_parts(context_, bucket.shard_sum, total.reshape(Shape{1, total.elements()}),
                 std::exchange(transfers_[b].has_sum, true));
}

void GradientSync::record_largest(bool empty) {
  accumulate_pending();
  if (largest_.empty() || empty || (alone() && one_stage() && one_tp_rank())) return;
  std::vector<float> of_step(largest_.size());
  device_.copy_to_host(of_step.data(), optimizer_state_.largest().data, optimizer_state_.largest().bytes());
  // Those of other stages' tensors are from the step before.
  for (const TrainedParameter& t : optimizer_state_.tensors())
    largest_[t.number] = std::max(largest_[t.number], of_step[t.number]);
}

void GradientSync::finish() {
  if (!alone()) finish_buckets();
  if (largest_.empty() || (alone() && one_stage() && one_tp_rank())) return;
  ranks_.all_reduce(std::span(largest_), comm::ReduceOp::max);
  stages_.all_reduce(std::span(largest_), comm::ReduceOp::max);
  tp_.all_reduce(std::span(largest_), comm::ReduceOp::max);
  device_.copy_from_host(optimizer_state_.largest().data, largest_.data(), optimizer_state_.largest().bytes());
}

Tensor GradientSync::section_of(const Bucket& bucket) const {
  const int rank = optimizer_state_.share().rank_of(bucket.divided);
  const auto begin = static_cast<int64_t>(section_start(bucket.sections, rank));
  return bucket.memory.slice(begin, begin + static_cast<int64_t>(bucket.sections[static_cast<size_t>(rank)]));
}

void GradientSync::finish_buckets() {
  for (const size_t b : in_flight_) {
    wait(b);
    reduce_across(b, section_of(optimizer_state_.buckets()[b]));
  }
  for (size_t b = 0; b < transfers_.size() && every_micro_batch(); ++b)
    reduce_across(b, optimizer_state_.buckets()[b].shard_sum);
  for (size_t b = 0; b < transfers_.size(); ++b) wait(b);
  in_flight_.clear();
}

void GradientSync::reduce_across(size_t b, const Tensor& section) {
  const auto& across = reduction(optimizer_state_.buckets()[b].divided).across;
  if (!across) return;
  if (log_ != nullptr) log_->begin(Action::reduce, static_cast<int64_t>(b));
  count(spec::Axis::replicas, spec::Collective::all_reduce, section.bytes());
  transfers_[b].operation =
      across->all_reduce(transfers_[b].across, section.data, static_cast<size_t>(section.elements()),
                         number_of(section), comm::ReduceOp::sum);
}

void GradientSync::sum_uses(size_t index) const {
  if (one_stage()) return;
  const Tensor& total = total_of(optimizer_state_.tensors()[index]);
  count(spec::Axis::pp, spec::Collective::all_reduce, total.bytes());
  uses_
      ->all_reduce(uses_workspace_, total.data, static_cast<size_t>(total.elements()), number_of(total),
                   comm::ReduceOp::sum)
      ->wait();
}

void GradientSync::abandon() {
  in_flight_.clear();
  pending_bucket_.reset();
  gathering_.clear();
  for (BucketTransfer& transfer : transfers_) {
    transfer.operation.reset();
    transfer.gather.reset();
  }
}

void GradientSync::sum(const Tensor& x) const {
  if (alone() && one_stage()) return;
  std::vector<double> values(static_cast<size_t>(x.elements()));
  device_.copy_to_host(values.data(), x.data, x.bytes());
  ranks_.all_reduce(std::span(values), comm::ReduceOp::sum);
  stages_.all_reduce(std::span(values), comm::ReduceOp::sum);
  device_.copy_from_host(x.data, values.data(), x.bytes());
}

// Over the ranks that have the parts of one copy of the model.
void GradientSync::sum_over_model(std::span<double> values) const {
  if (!has_whole_model()) model_.all_reduce(values, comm::ReduceOp::sum);
}

void GradientSync::gather_squares(const Tensor& squares) const {
  if (has_whole_model()) return;
  std::vector<double> values(static_cast<size_t>(squares.elements()));
  device_.copy_to_host(values.data(), squares.data, squares.bytes());
  sum_over_model(values);
  device_.copy_from_host(squares.data, values.data(), squares.bytes());
}

void GradientSync::gather_squares(const Tensor& squares, const Tensor& blocks) const {
  const ShardSpec& share = optimizer_state_.share();
  std::vector<double> local_blocks(static_cast<size_t>(blocks.elements()));
  device_.copy_to_host(local_blocks.data(), blocks.data, blocks.bytes());
  std::array<std::vector<double>, 2> own;
  auto next = local_blocks.begin();
  for (const TrainedParameter& t : optimizer_state_.tensors()) {
    const auto end = next + t.num_square_blocks(share);
    std::vector<double>& of_kind = own.at(t.divided ? 1 : 0);
    of_kind.insert(of_kind.end(), next, end);
    next = end;
  }
  // Without shards every rank has all blocks.
  const bool whole = share.zero_stage() == 0;
  RankBlocks all;
  all[0] = (whole ? comm::Group() : shard_).gather(std::span<const double>(own[0]));
  if (share.ep() > 1) all[1] = (whole ? comm::Group() : expert_shard_).gather(std::span<const double>(own[1]));
  const std::vector<double> totals = share.sum_slices > 1 ? sum_sliced_blocks(all) : sum_blocks(all);
  device_.copy_from_host(squares.data, totals.data(), squares.bytes());
}

// A tensor's parts are in the order of the ranks.
std::vector<double> GradientSync::sum_blocks(const RankBlocks& all) const {
  constexpr int64_t block = ops::sum_squares_block;
  const ShardSpec& share = optimizer_state_.share();
  std::array<std::vector<size_t>, 2> next_block{std::vector<size_t>(all[0].size()), std::vector<size_t>(all[1].size())};
  std::vector<double> totals(optimizer_state_.num_trainable());
  for (const TrainedParameter& t : optimizer_state_.tensors()) {
    const size_t kind = t.divided ? 1 : 0;
    double total = 0;
    for (size_t rank = 0; rank < all.at(kind).size(); ++rank) {
      const int64_t count = (t.parts[rank].count() + block - 1) / block;
      for (int64_t i = 0; i < count; ++i) total += all.at(kind)[rank].at(next_block.at(kind)[rank]++);
    }
    if (t.is_counted(share) && share.is_first_with(t.divided)) totals[t.number] = total;
  }
  sum_over_model(totals);
  return totals;
}

std::vector<double> GradientSync::sum_sliced_blocks(const RankBlocks& all) const {
  const ShardSpec& share = optimizer_state_.share();
  const auto slices = static_cast<size_t>(share.sum_slices);
  std::array<std::vector<size_t>, 2> next_block{std::vector<size_t>(all[0].size()), std::vector<size_t>(all[1].size())};
  // By tensor and slice, each of which one rank has: zeros are added to it.
  std::vector<double> of_slices(optimizer_state_.num_trainable() * slices);
  for (const TrainedParameter& t : optimizer_state_.tensors()) {
    if (!t.is_counted(share)) continue;
    const size_t kind = t.divided ? 1 : 0;
    const int64_t columns = t.shape.rank() > 1 ? t.shape[1] : 1;
    for (const SquareBlock& block : t.square_blocks) {
      size_t rank = 0;
      while (all.at(kind).size() > 1 && block.rows.begin * columns >= t.parts[rank].end) ++rank;
      const double squares = all.at(kind)[rank].at(next_block.at(kind)[rank]++);
      if (share.is_first_with(t.divided)) of_slices[t.number * slices + static_cast<size_t>(block.slice)] += squares;
    }
  }
  sum_over_model(of_slices);
  std::vector<double> totals(optimizer_state_.num_trainable());
  for (size_t i = 0; i < of_slices.size(); ++i) totals[i / slices] += of_slices[i];
  return totals;
}

void GradientSync::begin_gather(size_t b, Stream after) {
  const Bucket& bucket = optimizer_state_.buckets()[b];
  if (alone() || bucket.runs.empty()) return;
  const int rank = optimizer_state_.share().rank_of(bucket.divided);
  comm::DeviceCommunicator& ranks = *reduction(bucket.divided).between;
  BucketTransfer& transfer = transfers_[b];
  if (log_ != nullptr) log_->begin(Action::gather_updated, static_cast<int64_t>(b));
  for (const WeightRun& run : bucket.runs) {
    if (transfer.gather) std::exchange(transfer.gather, nullptr)->wait();  // it has the workspace
    count(spec::Axis::dp, spec::Collective::all_gather, run.bytes());
    transfer.gather = ranks.all_gather(transfer.workspace, run.memory, run.memory + section_start(run.sections, rank),
                                       run.sections, after);
  }
  gathering_.push_back(b);
}

void GradientSync::finish_gathers(size_t buckets) {
  for (; !gathering_.empty() && gathering_.front() < buckets; gathering_.pop_front()) {
    const size_t b = gathering_.front();
    std::exchange(transfers_[b].gather, nullptr)->wait();
    if (log_ != nullptr) log_->end(Action::gather_updated, static_cast<int64_t>(b));
  }
}

void GradientSync::gather_master(size_t index, const Tensor& whole) {
  const TrainedParameter& t = optimizer_state_.tensors()[index];
  const std::vector<Bucket>& buckets = optimizer_state_.buckets();
  const auto bucket = std::ranges::upper_bound(buckets, index, {}, &Bucket::last);  // the first that ends after it
  std::vector<size_t> bytes;
  for (const Range& part : t.parts) bytes.push_back(static_cast<size_t>(part.count()) * size_of(whole.dtype));
  BucketTransfer& transfer = transfers_[static_cast<size_t>(bucket - buckets.begin())];
  reduction(t.divided).between->all_gather(transfer.workspace, whole.data, t.master.data, bytes)->wait();
}

}  // namespace ingot::train
