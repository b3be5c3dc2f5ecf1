// Ingot's own order: the packed sequences of step t, as a pure function of (number of sequences, seed, epoch, t).
#pragma once

#include <cstdint>
#include <vector>

#include "data/order.h"

namespace ingot::data {

// A pseudorandom bijection of [0, n), selected by a seed and a stream and computed one value at a time in O(1) memory.
// It is a balanced Feistel network with Philox as round function (Luby and Rackoff 1988), over the smallest even power
// of two that is >= n and >= 256; values outside [0, n) are mapped again until they fall inside (cycle walking: Black
// and Rogaway, CT-RSA 2002).
class Permutation {
 public:
  // Errors: usage for n < 1.
  Permutation(int64_t n, uint64_t seed, uint64_t stream);

  int64_t size() const { return n_; }
  int64_t operator()(int64_t index) const;  // REQUIRES 0 <= index < n

 private:
  int64_t n_;
  uint64_t seed_, stream_;
  int half_bits_;
};

// Sequences are numbered continuously across epochs: step t has the global indices t * G .. t * G + G - 1, index i is
// in epoch i / N, and each epoch has its own Permutation. So every sequence occurs once per epoch, wherever a run
// resumes and whatever the batch size.
class Sampler : public Order {
 public:
  // Errors: usage for a number of sequences N or a global batch G below 1.
  Sampler(int64_t num_sequences, uint64_t seed, int64_t global_batch);

  // The G sequences of `step` (from 0), in the order of their accumulation units. Errors: usage for a negative step.
  std::vector<int64_t> step_samples(int64_t step) const override;

  int64_t num_sequences() const override { return num_sequences_; }
  int64_t global_batch() const { return global_batch_; }
  int64_t epoch_of(int64_t step) const;  // of the step's first sequence, from 0
  // The smallest number of steps that visits every sequence `epochs` times: ceil(epochs * N / G).
  int64_t steps_for_epochs(double epochs) const;

 private:
  int64_t num_sequences_;
  uint64_t seed_;
  int64_t global_batch_;
};

}  // namespace ingot::data
