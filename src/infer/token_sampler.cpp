#include "infer/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/philox.h"

namespace ingot::infer {

namespace {

constexpr int64_t columns = 1 + max_top_logprobs;

int64_t words_of(int64_t vocab) { return (vocab + 31) / 32; }
// Max edits per call of ops::sample; rows with more edits in total take several calls.
int64_t max_edits(int64_t vocab) { return std::max<int64_t>(vocab, 65536); }

int32_t bits_of(uint64_t word) { return static_cast<int32_t>(static_cast<uint32_t>(word)); }

void describe(const SampleRequest& wanted, int64_t row, float* scales, int32_t* cuts) {
  if (wanted.known) {  // greedy, under a mask that allows only this token
    scales[0] = 0;
    scales[1] = -std::numeric_limits<float>::infinity();
    std::fill_n(cuts, 4, 0);
    cuts[4] = static_cast<int32_t>(row);
    return;
  }
  const SamplingParams& s = *wanted.sampling;
  scales[0] = s.temperature > 0 ? power_scale(s.temperature) : 0.0F;
  scales[1] = s.min_p > 0 ? static_cast<float>(std::log2(s.min_p)) : -std::numeric_limits<float>::infinity();
  cuts[0] = static_cast<int32_t>(s.top_k);
  const double part = std::ceil(s.top_p * 0x1p32);
  cuts[1] = part < 0x1p32 ? bits_of(std::max<uint64_t>(1, static_cast<uint64_t>(part))) : 0;
  const uint64_t random = RandomStream(s.seed, wanted.position).next_u64();
  cuts[2] = bits_of(random);
  cuts[3] = bits_of(random >> 32);
  cuts[4] = wanted.masked ? static_cast<int32_t>(row) : -1;
}

std::string not_a_number() {
  try {
    check_number(std::numeric_limits<double>::quiet_NaN());
  } catch (const Error& error) {
    return error.message() + ": " + error.hint();
  }
  return {};
}

}  // namespace

size_t TokenSampler::bytes(int64_t rows, int64_t vocab) {
  const int64_t edits = max_edits(vocab);
  return Arena::footprint(DType::f32, Shape{rows, 2}) + Arena::footprint(DType::i32, Shape{rows, 5}) +
         Arena::footprint(DType::i32, Shape{rows + 1}) + Arena::footprint(DType::i32, Shape{edits}) +
         Arena::footprint(DType::f32, Shape{edits, 3}) + Arena::footprint(DType::i32, Shape{rows, words_of(vocab)}) +
         2 * Arena::footprint(DType::i32, Shape{rows, columns});
}

TokenSampler::TokenSampler(Device& device, Arena& arena, int64_t rows, int64_t vocab) : device_(device), vocab_(vocab) {
  const int64_t edits = max_edits(vocab);
  scales_ = arena.allocate(DType::f32, Shape{rows, 2});
  cuts_ = arena.allocate(DType::i32, Shape{rows, 5});
  offsets_ = arena.allocate(DType::i32, Shape{rows + 1});
  edit_ids_ = arena.allocate(DType::i32, Shape{edits});
  edit_values_ = arena.allocate(DType::f32, Shape{edits, 3});
  masks_ = arena.allocate(DType::i32, Shape{rows, words_of(vocab)});
  results_ = arena.allocate_bytes(2 * Arena::footprint(DType::i32, Shape{rows, columns}));
  const auto* begin = static_cast<const std::byte*>(scales_.data);
  upload_staging_ =
      PinnedBuffer(device, static_cast<size_t>(static_cast<const std::byte*>(masks_.data) - begin) + masks_.bytes());
  download_staging_ = PinnedBuffer(device, 2 * Arena::footprint(DType::i32, Shape{rows, columns}));
  done_ = device.make_event();
}

template <class T>
T* TokenSampler::on_host(const Tensor& tensor) const {
  const auto offset = static_cast<const std::byte*>(tensor.data) - static_cast<const std::byte*>(scales_.data);
  return reinterpret_cast<T*>(upload_staging_.data() + offset);
}

// Uploads the first `elements` elements of the tensor's host copy.
void TokenSampler::upload(const Tensor& tensor, int64_t elements) {
  device_.copy_from_host_async(Stream::compute, tensor.data, on_host<std::byte>(tensor),
                               static_cast<size_t>(elements) * size_of(tensor.dtype));
}

std::span<uint32_t> TokenSampler::mask(int64_t row) {
  const auto words = static_cast<size_t>(words_of(vocab_));
  return {on_host<uint32_t>(masks_) + static_cast<size_t>(row) * words, words};
}

// Samples rows [first, first + wanted.size()) into these rows of `results`.
void TokenSampler::sample_rows(ops::Context& context, const Tensor& logits, std::span<const SampleRequest> wanted,
                               int64_t first, const Results& results) {
  const int64_t rows = std::ssize(wanted);
  int64_t edited = 0;
  bool masked = false;
  for (int64_t r = 0; r < rows; ++r) {
    const SampleRequest& one = wanted[static_cast<size_t>(r)];
    masked |= one.masked || one.known;
    if (one.known) {
      const std::span<uint32_t> bits = mask(first + r);
      std::fill(bits.begin(), bits.end(), 0U);
      const auto id = static_cast<size_t>(*one.known);
      bits[id / 32] |= 1U << (id % 32);
    }
    describe(one, first + r, on_host<float>(scales_) + r * 2, on_host<int32_t>(cuts_) + r * 5);
    on_host<int32_t>(offsets_)[r] = static_cast<int32_t>(edited);
    for (const LogitEdit& edit : one.edits) {
      on_host<int32_t>(edit_ids_)[edited] = edit.id;
      float* values = on_host<float>(edit_values_) + edited++ * 3;
      values[0] = edit.positive;
      values[1] = edit.negative;
      values[2] = edit.add;
    }
  }
  on_host<int32_t>(offsets_)[rows] = static_cast<int32_t>(edited);
  // scales_, cuts_ and offsets_ are contiguous.
  const auto front = static_cast<const std::byte*>(offsets_.data) - static_cast<const std::byte*>(scales_.data);
  device_.copy_from_host_async(Stream::compute, scales_.data, upload_staging_.data(),
                               static_cast<size_t>(front) + static_cast<size_t>(rows + 1) * sizeof(int32_t));
  if (edited > 0) {
    upload(edit_ids_, edited);
    upload(edit_values_, edited * 3);
  }
  ops::SamplingRows how{scales_.slice(0, rows), cuts_.slice(0, rows), {}, offsets_.slice(0, rows + 1), {}, {}};
  how.vocabulary = vocab_;
  if (masked) {
    const int64_t words = words_of(vocab_);
    const size_t begin = static_cast<size_t>(first * words) * sizeof(uint32_t);
    device_.copy_from_host_async(Stream::compute, static_cast<std::byte*>(masks_.data) + begin,
                                 on_host<std::byte>(masks_) + begin,
                                 static_cast<size_t>(rows * words) * sizeof(uint32_t));
    how.masks = masks_;
  }
  if (edited > 0) {
    how.edit_ids = edit_ids_.slice(0, edited);
    how.edit_values = edit_values_.slice(0, edited);
  }
  ops::sample(context, results.chosen.slice(first, first + rows), results.logprobs.slice(first, first + rows),
              logits.slice(first, first + rows), how);
}

void TokenSampler::start(ops::Context& context, const Tensor& logits, std::span<const SampleRequest> wanted) {
  int64_t num_top = 0;
  expected_.clear();
  for (const SampleRequest& one : wanted) {
    num_top = std::max(num_top, one.sampling->top_logprobs);
    expected_.push_back({one.sampling->top_logprobs, one.error, one.kind});
  }
  num_top = std::min(num_top, vocab_ - 1);
  const Shape shape{std::ssize(wanted), 1 + num_top};
  const size_t logprobs_at = Arena::footprint(DType::i32, shape);
  started_ = {{results_, DType::i32, shape, &device_},
              {static_cast<std::byte*>(results_) + logprobs_at, DType::f32, shape, &device_}};
  // Each call takes as many rows as there is room for edits.
  for (size_t begin = 0; begin < wanted.size();) {
    size_t end = begin;
    int64_t room = max_edits(vocab_);
    while (end < wanted.size() && std::ssize(wanted[end].edits) <= room) room -= std::ssize(wanted[end++].edits);
    sample_rows(context, logits, wanted.subspan(begin, end - begin), static_cast<int64_t>(begin), started_);
    begin = end;
    if (begin == wanted.size()) break;
    done_->record(Stream::compute);  // the next upload reuses the host buffer
    done_->wait();
  }
  device_.copy_to_host_async(Stream::compute, download_staging_.data(), results_,
                             logprobs_at + started_.logprobs.bytes());
  done_->record(Stream::compute);
}

std::vector<SampleResult> TokenSampler::finish() {
  done_->wait();
  const Shape& shape = started_.chosen.shape;
  const auto* ids = reinterpret_cast<const int32_t*>(download_staging_.data());
  const auto* logprobs = reinterpret_cast<const float*>(download_staging_.data() + Arena::footprint(DType::i32, shape));
  std::vector<SampleResult> all;
  for (size_t r = 0; r < expected_.size(); ++r) {
    const size_t at = r * static_cast<size_t>(shape[1]);
    SampleResult& result = all.emplace_back();
    result.error = std::move(expected_[r].error);
    result.kind = expected_[r].kind;
    if (!result.error.empty()) continue;
    if (ids[at] == -1) {
      result.error = not_a_number();
      result.kind = ErrorKind::corrupt;
    }
    if (ids[at] == -2) result.error = "no token is allowed next";
    if (ids[at] < 0) continue;
    result.choice = {ids[at], logprobs[at], {}};
    for (int64_t i = 1; i <= std::min(shape[1] - 1, expected_[r].num_top); ++i) {
      const size_t index = at + static_cast<size_t>(i);
      result.choice.top.push_back({ids[index], logprobs[index]});
    }
  }
  return all;
}

std::vector<SampleResult> TokenSampler::run(ops::Context& context, const Tensor& logits,
                                            std::span<const SampleRequest> wanted) {
  start(context, logits, wanted);
  return finish();
}

}  // namespace ingot::infer
