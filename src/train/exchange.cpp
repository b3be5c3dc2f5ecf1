#include "train/exchange.h"

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

// Calls fn with the memory as a span of its numbers.
template <class Fn>
auto with_numbers(std::byte* data, const Tensor& tensor, Fn fn) {
  const auto count = static_cast<size_t>(tensor.elements());
  if (tensor.dtype == DType::i64) return fn(std::span(reinterpret_cast<int64_t*>(data), count));
  return fn(std::span(reinterpret_cast<float*>(data), count));
}

size_t section_start(const Bucket& bucket, int rank) {
  return std::accumulate(bucket.sections.begin(), bucket.sections.begin() + rank, size_t{0});
}

}  // namespace

Exchange::Exchange(Device& device, Trained& trained, const comm::Group& ranks)
    : device_(device), trained_(trained), ranks_(ranks), visible_(device.host_visible()) {
  const Share& share = trained.share();
  if (share.rank != ranks.rank() || share.ranks != ranks.size()) {
    throw_error(ErrorKind::internal, "state of rank {} of {} in rank {} of {}", share.rank, share.ranks, ranks.rank(),
                ranks.size());
  }
  if (alone()) return;
  traffic_.resize(trained.buckets().size());
  kept_.resize(traffic_.size());
  for (size_t b = 0; b < traffic_.size() && !visible_; ++b) {
    const Bucket& bucket = trained.buckets()[b];
    traffic_[b].staging = HostBuffer(device, bucket.memory.bytes());
    traffic_[b].computed = device.make_event();
    traffic_[b].copied = device.make_event();
    if (bucket.kept) kept_[b].resize(bucket.kept.bytes());
  }
  for (size_t b = 0; b < traffic_.size() && every_micro(); ++b) {
    std::vector<std::byte>& received = received_[b % 2];
    received.resize(std::max(received.size(), trained.buckets()[b].kept.bytes()));
  }
  if (trained.ranges()) largest_.resize(trained.tensors().size());
}

void Exchange::begin_step() {
  if (alone()) return;
  std::fill(largest_.begin(), largest_.end(), 0.0F);
  for (size_t b = 0; b < traffic_.size(); ++b) {
    const Tensor& kept = trained_.buckets()[b].kept;
    if (!kept || kept.elements() == 0) continue;
    std::memset(visible_ ? kept.data : kept_[b].data(), 0, kept.bytes());
  }
}

std::byte* Exchange::host_memory(size_t bucket) {
  return visible_ ? static_cast<std::byte*>(trained_.buckets()[bucket].memory.data) : traffic_[bucket].staging.data();
}

void Exchange::begin(size_t bucket, bool empty) {
  if (alone()) return;
  const Tensor& memory = trained_.buckets()[bucket].memory;
  Traffic& traffic = traffic_[bucket];
  if (empty) {
    if (!visible_) traffic.copied->wait();  // what was uploaded from there before
    std::memset(host_memory(bucket), 0, memory.bytes());
  } else if (!visible_) {
    // Beside backward: the memory is used again when the bucket was waited for.
    traffic.computed->record(Stream::compute);
    traffic.computed->hold(Stream::copy);
    device_.start_copy_to_host(Stream::copy, traffic.staging.data(), memory.data, memory.bytes());
    traffic.copied->record(Stream::copy);
  }
  begun_.push_back(bucket);
  if (visible_) begin_operation(bucket);
  if (!every_micro()) return;
  keep_under_way();
  under_way_ = bucket;
  if (bucket > 0 && trained_.buckets()[bucket - 1].memory.data == memory.data) keep_under_way();  // needed next
}

// Where the host does not see the device's memory: when the copy has arrived.
void Exchange::begin_operation(size_t b) {
  const Bucket& bucket = trained_.buckets()[b];
  Traffic& traffic = traffic_[b];
  if (!visible_) traffic.copied->wait();
  traffic.operation = with_numbers(host_memory(b), bucket.memory, [&]<class T>(std::span<T> all) {
    const size_t own = bucket.sections[static_cast<size_t>(ranks_.rank())];
    switch (trained_.share().stage()) {
      case 0: return ranks_.begin_all_reduce(all, comm::Combine::sum);
      case 1:
        return ranks_.begin_reduce_scatter<T>(all.subspan(section_start(bucket, ranks_.rank()), own), all,
                                              bucket.sections, comm::Combine::sum);
      default:
        return ranks_.begin_reduce_scatter<T>({reinterpret_cast<T*>(received_[b % 2].data()), own}, all,
                                              bucket.sections, comm::Combine::sum);
    }
  });
}

// Adds a micro-batch's total to that of the step.
void Exchange::keep_under_way() {
  if (!under_way_) return;
  const size_t b = *under_way_;
  under_way_.reset();
  const Tensor& kept = trained_.buckets()[b].kept;
  if (!visible_) begin_operation(b);
  traffic_[b].operation.wait();
  void* into = visible_ ? kept.data : kept_[b].data();
  if (!comm::combine(into, received_[b % 2].data(), static_cast<size_t>(kept.elements()), number_of(kept),
                     comm::Combine::sum)) {
    throw_error(ErrorKind::internal, "a fixed sum of {} numbers does not fit", kept.elements());
  }
}

void Exchange::take_largest(bool empty) {
  keep_under_way();
  if (largest_.empty()) return;
  std::vector<float> own(largest_.size());
  if (!empty) device_.copy_to_host(own.data(), trained_.largest().data, trained_.largest().bytes());
  std::transform(own.begin(), own.end(), largest_.begin(), largest_.begin(),
                 [](float a, float b) { return std::max(a, b); });
}

void Exchange::finish() {
  if (alone()) return;
  if (every_micro()) {
    for (size_t b = 0; b < traffic_.size() && !visible_; ++b) {
      const Tensor& kept = trained_.buckets()[b].kept;
      device_.copy_from_host(kept.data, kept_[b].data(), kept.bytes());
    }
  } else {
    for (size_t b = 0; b < begun_.size() && !visible_; ++b) begin_operation(begun_[b]);
    for (const size_t b : begun_) {
      Traffic& traffic = traffic_[b];
      traffic.operation.wait();
      if (visible_) continue;
      const Bucket& bucket = trained_.buckets()[b];
      const bool part = trained_.share().stage() == 1;
      const size_t begin = part ? section_start(bucket, ranks_.rank()) : 0;
      const size_t count =
          part ? bucket.sections[static_cast<size_t>(ranks_.rank())] : static_cast<size_t>(bucket.memory.elements());
      const size_t width = size_of(bucket.memory.dtype);
      device_.start_copy_from_host(Stream::compute, static_cast<std::byte*>(bucket.memory.data) + begin * width,
                                   traffic.staging.data() + begin * width, count * width);
      traffic.copied->record(Stream::compute);
    }
  }
  begun_.clear();
  if (largest_.empty()) return;
  ranks_.all_reduce(std::span(largest_), comm::Combine::max);
  device_.copy_from_host(trained_.largest().data, largest_.data(), trained_.largest().bytes());
}

void Exchange::forget() {
  begun_.clear();
  under_way_.reset();
  for (Traffic& traffic : traffic_) traffic.operation = {};
}

void Exchange::sum(const Tensor& x) const {
  if (alone()) return;
  std::vector<double> values(static_cast<size_t>(x.elements()));
  device_.copy_to_host(values.data(), x.data, x.bytes());
  ranks_.all_reduce(std::span(values), comm::Combine::sum);
  device_.copy_from_host(x.data, values.data(), x.bytes());
}

void Exchange::join_squares(const Tensor& squares, const Tensor& blocks) const {
  constexpr int64_t block = ops::sum_squares_block;
  std::vector<double> own(static_cast<size_t>(blocks.elements()));
  device_.copy_to_host(own.data(), blocks.data, blocks.bytes());
  // Ranks' parts of a bucket lie one behind the other, so of a tensor too.
  const std::vector<std::vector<double>> all = ranks_.gather(std::span<const double>(own));
  std::vector<size_t> taken(all.size());
  std::vector<double> totals;
  for (const TrainedTensor& t : trained_.tensors()) {
    double total = 0;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const int64_t count = (t.parts[rank].count() + block - 1) / block;
      for (int64_t i = 0; i < count; ++i) total += all[rank].at(taken[rank]++);
    }
    totals.push_back(total);
  }
  device_.copy_from_host(squares.data, totals.data(), squares.bytes());
}

void Exchange::gather(const Tensor& whole, const Tensor& own, const std::vector<Range>& parts) const {
  const size_t width = size_of(whole.dtype);
  std::vector<size_t> bytes;
  for (const Range& part : parts) bytes.push_back(static_cast<size_t>(part.count()) * width);
  const std::span own_bytes(static_cast<const std::byte*>(own.data), own.bytes());
  if (visible_) {
    ranks_.begin_all_gather({static_cast<std::byte*>(whole.data), whole.bytes()}, own_bytes, bytes).wait();
    return;
  }
  gathered_.resize(std::max(gathered_.size(), whole.bytes()));
  std::vector<std::byte> sent(own.bytes());
  device_.copy_to_host(sent.data(), own.data, own.bytes());
  ranks_.begin_all_gather({gathered_.data(), whole.bytes()}, sent, bytes).wait();
  device_.copy_from_host(whole.data, gathered_.data(), whole.bytes());
}

void Exchange::gather_weights() const {
  if (trained_.share().stage() == 0) return;
  for (const TrainedTensor& t : trained_.tensors()) {
    const Tensor flat = t.weight.reshape(Shape{t.weight.elements()});
    gather(flat, flat.slice(t.own.begin, t.own.end), t.parts);
  }
}

void Exchange::gather_master(size_t place, const Tensor& whole) const {
  const TrainedTensor& t = trained_.tensors()[place];
  gather(whole, t.master, t.parts);
}

}  // namespace ingot::train
