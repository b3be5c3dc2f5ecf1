// RMSNorm and LayerNorm as a layer. Letters: R rows (one or more per token), H features.
#pragma once

#include "nn/pass.h"

namespace ingot::nn {

// What a norm's backward reads besides its input: [R] f32 each. Absent when no backward follows.
struct NormStatistics {
  Tensor rstd;
  Tensor mean;  // LayerNorm only
};

struct Norm {
  Tensor weight;  // [H] f32
  Tensor bias;    // [H] f32, absent when the norm has none
  spec::NormKind kind = spec::NormKind::rms;
  float epsilon = 0;
  float weight_offset = 0;  // added to every weight
  size_t parameter = 0;     // index of the weight in spec::parameters
  size_t bias_parameter = 0;
  int trainable = -1;  // indices among the trainable parameters, -1 when frozen
  int bias_trainable = -1;

  explicit operator bool() const { return static_cast<bool>(weight); }
  bool has_trainable() const { return trainable >= 0 || bias_trainable >= 0; }

  // y [R, H]; y may be x.
  void forward(Pass& pass, const Tensor& y, const NormStatistics& statistics, const Tensor& x) const;
  // dx (+)= the gradient of x; the gradients of weight and bias go to the accumulator, one accumulation unit at a time.
  // Every token has the same number of rows.
  void backward(Pass& pass, const Tensor& dx, const Tensor& dy, const Tensor& x, const NormStatistics& statistics,
                bool accumulate) const;

  // Scratch bytes of backward.
  static size_t bytes(int64_t rows, int64_t features);

 private:
  void backward_rows(Pass& pass, const Tensor& dx, const GradientAccumulator::Slot& slot, const Tensor& dy,
                     const Tensor& x, const NormStatistics& statistics, bool accumulate) const;
};

}  // namespace ingot::nn
