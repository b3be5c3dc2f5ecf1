// Which sequences of a set form step t.
#pragma once

#include <cstdint>
#include <vector>

namespace ingot::data {

class Order {
 public:
  virtual ~Order() = default;

  // Of the set it is over.
  virtual int64_t num_sequences() const = 0;
  // The sequences of `step` (from 0), in the order of their units of work; a pure function, callable from any thread.
  // Errors: usage for a step that there is not.
  virtual std::vector<int64_t> step_samples(int64_t step) const = 0;
};

// For a set whose indices are its order: step t takes t * G .. t * G + G - 1.
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
