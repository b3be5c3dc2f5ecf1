#include "train/batch_uploader.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::train {

size_t BatchUploader::bytes(int64_t tokens, int held, int ranks) {
  // ids, positions, targets, losses; dropout rows; sub-sequence offsets (at most one per token, plus one)
  const int64_t own = tokens / ranks;
  return static_cast<size_t>(held) *
         (4 * Arena::footprint(DType::i32, Shape{own}) + Arena::footprint(DType::i64, Shape{own}) +
          Arena::footprint(DType::i32, Shape{tokens + 1}));
}

namespace {
const std::byte* end_of(const Tensor& tensor) { return static_cast<const std::byte*>(tensor.data) + tensor.bytes(); }
}  // namespace

BatchUploader::BatchUploader(Device& device, Arena& memory, int64_t tokens, int held, Share share)
    : device_(device), share_(share), slots_(static_cast<size_t>(held)) {
  const int64_t own = tokens / share.ranks;
  for (Slot& slot : slots_) {
    slot.ids = memory.allocate(DType::i32, Shape{own});
    slot.positions = memory.allocate(DType::i32, Shape{own});
    slot.targets = memory.allocate(DType::i32, Shape{own});
    slot.rows = memory.allocate(DType::i64, Shape{own});
    slot.offsets = memory.allocate(DType::i32, Shape{tokens + 1});
    slot.upload = PinnedBuffer(device, static_cast<size_t>(end_of(slot.offsets) - end_of(slot.ids.slice(0, 0))));
    slot.losses = memory.allocate(DType::f32, Shape{own});
    slot.download = PinnedBuffer(device, slot.losses.bytes());
    slot.uploaded = device.make_event();
    slot.computed = device.make_event();
    slot.done = device.make_event();
  }
}

int64_t BatchUploader::put(std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples,
                           int64_t length, int64_t accumulation_unit, std::vector<LossSum>* sums) {
  Slot& slot = slot_of(next_);
  collect(slot);
  slot.done->wait();  // the device has finished with the slot's previous contents
  slot.uploaded->wait();

  const int64_t all = static_cast<int64_t>(sequences.size()) * length, tokens = all / share_.ranks;
  if (all % spec::context_parts(share_.type, share_.ranks) != 0) {
    throw_error(ErrorKind::internal, "{} sequences of {} tokens over {} context-parallel ranks", sequences.size(),
                length, share_.ranks);
  }
  const std::vector<spec::Range> own = spec::context_rows(share_.type, share_.rank, share_.ranks, all);
  // The host buffer has the same layout as the device tensors, which are consecutive in the arena.
  const auto on_host = [&](const Tensor& part) {
    return slot.upload.data() +
           (static_cast<const std::byte*>(part.data) - static_cast<const std::byte*>(slot.ids.data));
  };
  auto* ids = reinterpret_cast<int32_t*>(on_host(slot.ids));
  auto* positions = reinterpret_cast<int32_t*>(on_host(slot.positions));
  auto* targets = reinterpret_cast<int32_t*>(on_host(slot.targets));
  auto* rows = reinterpret_cast<int64_t*>(on_host(slot.rows));
  auto* offsets = reinterpret_cast<int32_t*>(on_host(slot.offsets));
  int64_t num_offsets = 0;
  offsets[num_offsets++] = 0;
  slot.parts.clear();
  int64_t at = 0;  // the row of the next token of this rank
  for (size_t i = 0; i < sequences.size(); ++i) {
    const data::PackedSequence& sequence = sequences[i];
    if (static_cast<int64_t>(sequence.ids.size()) != length) {
      throw_error(ErrorKind::internal, "a packed sequence has {} tokens, the step expects {}", sequence.ids.size(),
                  length);
    }
    const int64_t base = static_cast<int64_t>(i) * length;
    for (size_t s = 1; s < sequence.offsets.size(); ++s) {
      offsets[num_offsets++] = static_cast<int32_t>(base) + sequence.offsets[s];
    }
    for (const spec::Range& range : own) {
      const auto [begin, end] = spec::common(range, {base, base + length});
      if (begin == end) continue;
      const int64_t from = begin - base, to = end - base;
      const auto copy = [&](const std::vector<int32_t>& values, int32_t* out) {
        std::copy(values.begin() + from, values.begin() + to, out + at);
      };
      copy(sequence.ids, ids);
      copy(sequence.targets, targets);
      copy(data::positions(sequence), positions);
      const int64_t sample = samples.empty() ? 0 : samples[i];
      for (int64_t t = from; t < to; ++t) rows[at + t - from] = (sample << 32) + t;
      const int64_t part = length / share_.slices;
      for (int64_t t = from; t < to;) {
        const int64_t place = (next_ << 32) + base + t;
        t = std::min(to, t / part * part + part);
        slot.parts.push_back({at + t - from, place});
      }
      at += to - from;
    }
  }
  device_.copy_from_host_async(Stream::copy, slot.ids.data, slot.upload.data(), slot.upload.bytes());
  slot.uploaded->record(Stream::copy);

  MicroBatch& batch = slot.batch;
  batch.tokens = {slot.ids.slice(0, tokens), slot.positions.slice(0, tokens), slot.offsets.slice(0, num_offsets)};
  batch.targets = slot.targets.slice(0, tokens);
  batch.rows = slot.rows.slice(0, tokens);
  batch.losses = slot.losses.slice(0, tokens);
  batch.accumulation_offsets.clear();
  batch.accumulation_offsets.push_back(0);
  const int64_t unit = accumulation_unit * length / share_.slices;
  for (const spec::Range& range : own) {
    const int64_t before = batch.accumulation_offsets.back();
    for (int64_t row = range.begin / unit * unit + unit; row < range.end; row += unit)
      batch.accumulation_offsets.push_back(before + row - range.begin);
    batch.accumulation_offsets.push_back(before + range.count());
  }
  slot.sums = sums;
  return next_++;
}

const MicroBatch& BatchUploader::take(int64_t number) {
  slot_of(number).uploaded->wait_on(Stream::compute);
  return slot_of(number).batch;
}

void BatchUploader::done(int64_t number) { slot_of(number).done->record(Stream::compute); }

void BatchUploader::computed(int64_t number) {
  Slot& slot = slot_of(number);
  device_.copy_to_host_async(Stream::compute, slot.download.data(), slot.batch.losses.data, slot.batch.losses.bytes());
  slot.computed->record(Stream::compute);
}

void BatchUploader::collect(Slot& slot) {
  if (slot.sums == nullptr) return;
  slot.computed->wait();
  const auto* losses = reinterpret_cast<const float*>(slot.download.data());
  int64_t row = 0;
  for (const Part& part : slot.parts) {
    LossSum& sum = slot.sums->emplace_back(LossSum{part.place});
    for (; row < part.end; ++row) sum.sum += static_cast<double>(losses[row]);
  }
  slot.sums = nullptr;
}

void BatchUploader::collect(const std::vector<LossSum>& sums) {
  const int64_t oldest = std::max<int64_t>(0, next_ - std::ssize(slots_));
  for (int64_t number = oldest; number < next_; ++number) {
    if (slot_of(number).sums == &sums) collect(slot_of(number));
  }
}

void BatchUploader::discard_pending() {
  for (Slot& slot : slots_) slot.sums = nullptr;
}

}  // namespace ingot::train
