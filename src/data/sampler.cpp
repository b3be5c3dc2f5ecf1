#include "data/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"

namespace ingot::data {

namespace {

// A Feistel network of random round functions needs four rounds to be indistinguishable from random; there are more
// because the halves are short.
constexpr uint32_t num_rounds = 8;
// A domain of at least 256: with halves of one or two bits a Feistel network cannot reach every permutation.
constexpr int min_half_bits = 4;

}  // namespace

Permutation::Permutation(int64_t n, uint64_t seed, uint64_t stream) : n_(n), seed_(seed), stream_(stream) {
  if (n < 1) throw_error(ErrorKind::usage, "cannot make a permutation of {} items", n);
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)));
  half_bits_ = std::max(min_half_bits, (bits + 1) / 2);
}

int64_t Permutation::operator()(int64_t index) const {
  const uint32_t mask = static_cast<uint32_t>((uint64_t{1} << half_bits_) - 1);
  uint64_t value = static_cast<uint64_t>(index);
  do {
    uint32_t left = static_cast<uint32_t>(value >> half_bits_);
    uint32_t right = static_cast<uint32_t>(value) & mask;
    for (uint32_t round = 0; round < num_rounds; ++round) {
      const auto words =
          Philox::block({right, round, static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                        {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
      const uint32_t next = left ^ (words[0] & mask);
      left = right;
      right = next;
    }
    value = uint64_t{left} << half_bits_ | right;
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

Sampler::Sampler(int64_t num_sequences, uint64_t seed, int64_t global_batch)
    : num_sequences_(num_sequences), seed_(seed), global_batch_(global_batch) {
  if (num_sequences < 1)
    throw_error(ErrorKind::usage, "the data holds {} sequences; at least one is needed", num_sequences);
  if (global_batch < 1) throw_error(ErrorKind::usage, "batch.global is {}; it must be at least 1", global_batch);
}

std::vector<int64_t> Sampler::step_samples(int64_t step) const {
  if (step < 0) throw_error(ErrorKind::usage, "step {} is out of range; steps count from 0", step);
  std::vector<int64_t> samples;
  samples.reserve(static_cast<size_t>(global_batch_));
  for (int64_t i = 0; i < global_batch_; ++i) {
    const int64_t index = step * global_batch_ + i;
    const Permutation order(num_sequences_, seed_, static_cast<uint64_t>(index / num_sequences_));
    samples.push_back(order(index % num_sequences_));
  }
  return samples;
}

int64_t Sampler::epoch_of(int64_t step) const { return step * global_batch_ / num_sequences_; }

int64_t Sampler::steps_for_epochs(double epochs) const {
  if (!(epochs > 0)) throw_error(ErrorKind::usage, "epochs is {}; it must be more than 0", epochs);
  const double sequences = std::ceil(epochs * static_cast<double>(num_sequences_));
  return static_cast<int64_t>(std::ceil(sequences / static_cast<double>(global_batch_)));
}

}  // namespace ingot::data
