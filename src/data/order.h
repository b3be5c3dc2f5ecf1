// The order of training: which sequences of a data set form step t.
#pragma once

#include <cstdint>
#include <vector>

namespace ingot::data {

class Order {
 public:
  virtual ~Order() = default;

  // In the data set that the order is over.
  virtual int64_t num_sequences() const = 0;
  // The sequences of `step` (from 0), in the order of their accumulation units. Pure and thread-safe. Errors: usage for
  // a step beyond the order.
  virtual std::vector<int64_t> step_samples(int64_t step) const = 0;
};

// For a data set whose indices are already in training order: step t has sequences t * G .. t * G + G - 1.
class SequentialOrder : public Order {
 public:
  SequentialOrder(int64_t num_sequences, int64_t global_batch)
      : num_sequences_(num_sequences), global_batch_(global_batch) {}

  int64_t num_sequences() const override { return num_sequences_; }
  std::vector<int64_t> step_samples(int64_t step) const override;

 private:
  int64_t num_sequences_, global_batch_;
};

}  // namespace ingot::data
