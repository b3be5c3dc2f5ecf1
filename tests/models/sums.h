// A gradient accumulator that adds contributions in the order of arrival, those of a tied embedding's lookup apart.
#pragma once

#include <utility>
#include <vector>

#include "nn/gradient_accumulator.h"

namespace ingot::models {

class Sums : public nn::GradientAccumulator {
 public:
  // `lookup`: for the lookup of a tied embedding; absent: added to the embedding's sum.
  explicit Sums(std::vector<Tensor> sums, Tensor lookup = {})
      : sums_(std::move(sums)), lookup_(lookup), has_(sums_.size()) {}
  bool has(int trainable) const override { return has_[static_cast<size_t>(trainable)]; }
  Slot open(int trainable, int64_t, int use) override {
    if (use == 1 && lookup_) return {lookup_, std::exchange(has_lookup_, true)};
    const auto place = static_cast<size_t>(trainable);
    const Slot slot{sums_[place], has_[place]};
    has_[place] = true;
    return slot;
  }
  void close(int, int64_t, int) override {}

 private:
  std::vector<Tensor> sums_;
  Tensor lookup_;
  std::vector<bool> has_;
  bool has_lookup_ = false;
};

}  // namespace ingot::models
