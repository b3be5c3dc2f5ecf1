#include "train/gradient_sync.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "comm/combine.h"
#include "ops/adamw_bytes.h"

namespace ingot::train {

namespace {

comm::Number number_of(const Tensor& tensor) {
  return tensor.dtype == DType::i64 ? comm::Number::i64 : comm::Number::f32;
}

// Calls fn with the memory as a span of its element type.
template <class Fn>
auto with_numbers(std::byte* data, const Tensor& tensor, Fn fn) {
  const auto count = static_cast<size_t>(tensor.elements());
  if (tensor.dtype == DType::i64) return fn(std::span(reinterpret_cast<int64_t*>(data), count));
  return fn(std::span(reinterpret_cast<float*>(data), count));
}

// Where a tensor's gradient is summed.
const Tensor& total_of(const TrainedParameter& t) { return t.sum ? t.sum : t.gradient; }

size_t section_start(const Bucket& bucket, int rank) {
  return std::accumulate(bucket.sections.begin(), bucket.sections.begin() + rank, size_t{0});
}

}  // namespace

GradientSync::GradientSync(Device& device, OptimizerState& optimizer_state, const comm::Grid& grid)
    : device_(device),
      optimizer_state_(optimizer_state),
      ranks_(grid.dp),
      stages_(grid.pp),
      tp_(grid.tp),
      model_(grid.model),
      uses_(grid.ends),
      host_visible_(device.host_visible()) {
  const ShardSpec& share = optimizer_state.share();
  if (share.rank != ranks_.rank() || share.ranks != ranks_.size() || share.stage() != stages_.rank() ||
      share.stages() != stages_.size() || share.tp_rank() != tp_.rank() || share.tp() != tp_.size()) {
    throw_error(
        ErrorKind::internal,
        "optimizer state is that of rank {} of {}, stage {} of {} and tensor-parallel rank {} of {}, not {} of {}, "
        "{} of {}, {} of {}",
        share.rank, share.ranks, share.stage(), share.stages(), share.tp_rank(), share.tp(), ranks_.rank(),
        ranks_.size(), stages_.rank(), stages_.size(), tp_.rank(), tp_.size());
  }
  if (optimizer_state.ranges() && tp_.size() > 1)
    throw_error(ErrorKind::internal, "fixed-point sums over {} tensor-parallel ranks", tp_.size());
  if (optimizer_state.ranges()) largest_.resize(optimizer_state.num_trainable());
  for (const Bucket& bucket : optimizer_state.buckets()) {
    if (bucket.split && !host_visible_)
      uses_staging_ = PinnedBuffer(device, total_of(optimizer_state.tensors()[*bucket.split]).bytes());
  }
  if (alone()) return;
  transfers_.resize(optimizer_state.buckets().size());
  shard_sums_.resize(transfers_.size());
  for (size_t b = 0; b < transfers_.size() && !host_visible_; ++b) {
    const Bucket& bucket = optimizer_state.buckets()[b];
    transfers_[b].staging = PinnedBuffer(device, bucket.memory.bytes());
    transfers_[b].computed = device.make_event();
    transfers_[b].copied = device.make_event();
    if (bucket.shard_sum) shard_sums_[b].resize(bucket.shard_sum.bytes());
  }
  for (size_t b = 0; b < transfers_.size() && every_micro_batch(); ++b) {
    std::vector<std::byte>& received = received_[b % 2];
    received.resize(std::max(received.size(), optimizer_state.buckets()[b].shard_sum.bytes()));
  }
}

void GradientSync::begin_step() {
  std::fill(largest_.begin(), largest_.end(), 0.0F);
  if (alone()) return;
  for (size_t b = 0; b < transfers_.size(); ++b) {
    const Tensor& shard_sum = optimizer_state_.buckets()[b].shard_sum;
    if (!shard_sum || shard_sum.elements() == 0) continue;
    std::memset(host_visible_ ? shard_sum.data : shard_sums_[b].data(), 0, shard_sum.bytes());
  }
}

std::byte* GradientSync::host_memory(size_t bucket) {
  return host_visible_ ? static_cast<std::byte*>(optimizer_state_.buckets()[bucket].memory.data)
                       : transfers_[bucket].staging.data();
}

void GradientSync::sum_partial(const Bucket& bucket) {
  const auto for_partial = [&](auto fn) {
    size_t at = 0;
    for (size_t i = bucket.first; i < bucket.last; ++i) {
      const TrainedParameter& t = optimizer_state_.tensors()[i];
      if (t.placement != spec::TensorPlacement::partial) continue;
      fn(t.gradient, at);
      at += static_cast<size_t>(t.gradient.elements());
    }
    return at;
  };
  std::vector<float> sums(for_partial([](const Tensor&, size_t) {}));
  if (sums.empty()) return;
  for_partial([&](const Tensor& x, size_t at) { device_.copy_to_host(sums.data() + at, x.data, x.bytes()); });
  tp_.all_reduce(std::span(sums), comm::ReduceOp::sum);
  for_partial([&](const Tensor& x, size_t at) { device_.copy_from_host(x.data, sums.data() + at, x.bytes()); });
}

void GradientSync::begin(size_t bucket, bool empty) {
  if (tp_.size() > 1 && !local_only_ && !empty) sum_partial(optimizer_state_.buckets()[bucket]);
  if (alone()) return;
  const Tensor& memory = optimizer_state_.buckets()[bucket].memory;
  BucketTransfer& transfer = transfers_[bucket];
  if (empty) {
    if (!host_visible_) transfer.copied->wait();  // the previous upload from the staging buffer
    std::memset(host_memory(bucket), 0, memory.bytes());
  } else if (!host_visible_) {
    // Copies while backward goes on; the memory is reused only after the bucket's synchronisation was waited for.
    transfer.computed->record(Stream::compute);
    transfer.computed->wait_on(Stream::copy);
    device_.copy_to_host_async(Stream::copy, transfer.staging.data(), memory.data, memory.bytes());
    transfer.copied->record(Stream::copy);
  }
  in_flight_.push_back(bucket);
  if (host_visible_) begin_operation(bucket);
  if (!every_micro_batch()) return;
  accumulate_pending();
  pending_bucket_ = bucket;
  if (bucket > 0 && optimizer_state_.buckets()[bucket - 1].memory.data == memory.data) accumulate_pending();  // shared
}

// Where the host cannot access device memory, waits for the bucket's copy to arrive first.
void GradientSync::begin_operation(size_t b) {
  const Bucket& bucket = optimizer_state_.buckets()[b];
  BucketTransfer& transfer = transfers_[b];
  if (!host_visible_) transfer.copied->wait();
  transfer.operation = with_numbers(host_memory(b), bucket.memory, [&]<class T>(std::span<T> all) {
    const size_t section = bucket.sections[static_cast<size_t>(ranks_.rank())];
    switch (optimizer_state_.share().zero_stage()) {
      case 0: return ranks_.begin_all_reduce(all, comm::ReduceOp::sum);
      case 1:
        return ranks_.begin_reduce_scatter<T>(all.subspan(section_start(bucket, ranks_.rank()), section), all,
                                              bucket.sections, comm::ReduceOp::sum);
      default:
        return ranks_.begin_reduce_scatter<T>({reinterpret_cast<T*>(received_[b % 2].data()), section}, all,
                                              bucket.sections, comm::ReduceOp::sum);
    }
  });
}

// Adds a micro-batch's total to the step's.
void GradientSync::accumulate_pending() {
  if (!pending_bucket_) return;
  const size_t b = *pending_bucket_;
  pending_bucket_.reset();
  const Tensor& shard_sum = optimizer_state_.buckets()[b].shard_sum;
  if (!host_visible_) begin_operation(b);
  transfers_[b].operation.wait();
  void* into = host_visible_ ? shard_sum.data : shard_sums_[b].data();
  if (!comm::combine(into, received_[b % 2].data(), static_cast<size_t>(shard_sum.elements()), number_of(shard_sum),
                     comm::ReduceOp::sum)) {
    throw_error(ErrorKind::internal, "a fixed-point sum of {} numbers overflows int64", shard_sum.elements());
  }
}

void GradientSync::record_largest(bool empty) {
  accumulate_pending();
  if (largest_.empty() || empty || (alone() && one_stage())) return;
  std::vector<float> of_step(largest_.size());
  device_.copy_to_host(of_step.data(), optimizer_state_.largest().data, optimizer_state_.largest().bytes());
  // Those of other stages' tensors are from the step before.
  for (const TrainedParameter& t : optimizer_state_.tensors())
    largest_[t.number] = std::max(largest_[t.number], of_step[t.number]);
}

void GradientSync::finish() {
  if (!alone()) finish_buckets();
  if (largest_.empty() || (alone() && one_stage())) return;
  ranks_.all_reduce(std::span(largest_), comm::ReduceOp::max);
  stages_.all_reduce(std::span(largest_), comm::ReduceOp::max);
  device_.copy_from_host(optimizer_state_.largest().data, largest_.data(), optimizer_state_.largest().bytes());
}

void GradientSync::finish_buckets() {
  if (every_micro_batch()) {
    for (size_t b = 0; b < transfers_.size() && !host_visible_; ++b) {
      const Tensor& shard_sum = optimizer_state_.buckets()[b].shard_sum;
      device_.copy_from_host(shard_sum.data, shard_sums_[b].data(), shard_sum.bytes());
    }
  } else {
    for (size_t b = 0; b < in_flight_.size() && !host_visible_; ++b) begin_operation(in_flight_[b]);
    for (const size_t b : in_flight_) {
      BucketTransfer& transfer = transfers_[b];
      transfer.operation.wait();
      if (host_visible_) continue;
      const Bucket& bucket = optimizer_state_.buckets()[b];
      const bool scattered = optimizer_state_.share().zero_stage() == 1;
      const size_t begin = scattered ? section_start(bucket, ranks_.rank()) : 0;
      const size_t count = scattered ? bucket.sections[static_cast<size_t>(ranks_.rank())]
                                     : static_cast<size_t>(bucket.memory.elements());
      const size_t width = size_of(bucket.memory.dtype);
      device_.copy_from_host_async(Stream::compute, static_cast<std::byte*>(bucket.memory.data) + begin * width,
                                   transfer.staging.data() + begin * width, count * width);
      transfer.copied->record(Stream::compute);
    }
  }
  in_flight_.clear();
}

void GradientSync::sum_uses(size_t index) const {
  if (one_stage()) return;
  const TrainedParameter& t = optimizer_state_.tensors()[index];
  const Tensor& total = total_of(t);
  std::byte* memory = host_visible_ ? static_cast<std::byte*>(total.data) : uses_staging_.data();
  if (!host_visible_) device_.copy_to_host(memory, total.data, total.bytes());
  with_numbers(memory, total, [&]<class T>(std::span<T> all) { uses_.all_reduce(all, comm::ReduceOp::sum); });
  if (!host_visible_) device_.copy_from_host(total.data, memory, total.bytes());
}

void GradientSync::abandon() {
  in_flight_.clear();
  pending_bucket_.reset();
  for (BucketTransfer& transfer : transfers_) transfer.operation = {};
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
  constexpr int64_t block = ops::sum_squares_block;
  std::vector<double> local_blocks(static_cast<size_t>(blocks.elements()));
  device_.copy_to_host(local_blocks.data(), blocks.data, blocks.bytes());
  // Each rank's blocks are in the order of the tensors, and a tensor's parts are in the order of the ranks.
  const std::vector<std::vector<double>> all = ranks_.gather(std::span<const double>(local_blocks));
  std::vector<size_t> next_block(all.size());
  std::vector<double> totals(optimizer_state_.num_trainable());
  for (const TrainedParameter& t : optimizer_state_.tensors()) {
    double total = 0;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const int64_t count = (t.parts[rank].count() + block - 1) / block;
      for (int64_t i = 0; i < count; ++i) total += all[rank].at(next_block[rank]++);
    }
    if (t.is_counted(optimizer_state_.share())) totals[t.number] = total;
  }
  sum_over_model(totals);
  device_.copy_from_host(squares.data, totals.data(), squares.bytes());
}

void GradientSync::gather(const Tensor& whole, const Tensor& shard, const std::vector<Range>& parts) const {
  const size_t width = size_of(whole.dtype);
  std::vector<size_t> bytes;
  for (const Range& part : parts) bytes.push_back(static_cast<size_t>(part.count()) * width);
  const std::span shard_bytes(static_cast<const std::byte*>(shard.data), shard.bytes());
  if (host_visible_) {
    ranks_.begin_all_gather({static_cast<std::byte*>(whole.data), whole.bytes()}, shard_bytes, bytes).wait();
    return;
  }
  gathered_.resize(std::max(gathered_.size(), whole.bytes()));
  std::vector<std::byte> sent(shard.bytes());
  device_.copy_to_host(sent.data(), shard.data, shard.bytes());
  ranks_.begin_all_gather({gathered_.data(), whole.bytes()}, sent, bytes).wait();
  device_.copy_from_host(whole.data, gathered_.data(), whole.bytes());
}

void GradientSync::gather_weights() const {
  if (optimizer_state_.share().zero_stage() == 0 || !optimizer_state_.has_whole_weights()) return;
  for (const TrainedParameter& t : optimizer_state_.tensors()) {
    const Tensor flat = t.weight.reshape(Shape{t.weight.elements()});
    gather(flat, flat.slice(t.shard.begin, t.shard.end), t.parts);
  }
}

void GradientSync::gather_master(size_t index, const Tensor& whole) const {
  const TrainedParameter& t = optimizer_state_.tensors()[index];
  gather(whole, t.master, t.parts);
}

}  // namespace ingot::train
