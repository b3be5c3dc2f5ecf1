// Element-wise ops. f32, bf16 and, except for dropout and backward ops, f16; computed in fp32, rounded once.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// y = a + b, all of the same dtype and number of elements. y may be a or b.
void add(Context& context, const Tensor& y, const Tensor& a, const Tensor& b);
struct Add {
  static constexpr const char* name = "add";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&);
};

// y = factor * x, converted to y's dtype. y may be x when the dtypes are equal. factor 1 is a cast.
void scale(Context& context, const Tensor& y, const Tensor& x, float factor);
struct Scale {
  static constexpr const char* name = "scale";
  using Signature = void(Context&, const Tensor&, const Tensor&, float);
};

// y = x clamped to [-limit, limit], of the same dtype and number of elements; limit > 0; NaN stays NaN. y may be x.
void clamp(Context& context, const Tensor& y, const Tensor& x, float limit);
struct Clamp {
  static constexpr const char* name = "clamp";
  using Signature = void(Context&, const Tensor&, const Tensor&, float);
};

// Assigns dx = dy where |x| <= limit, else 0. dx may be dy or x.
void clamp_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& x, float limit);
struct ClampBackward {
  static constexpr const char* name = "clamp_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, float);
};

// y = cap tanh(x / cap), of the same dtype and number of elements; cap > 0. y may be x.
void softcap(Context& context, const Tensor& y, const Tensor& x, float cap);
struct Softcap {
  static constexpr const char* name = "softcap";
  using Signature = void(Context&, const Tensor&, const Tensor&, float);
};

// Assigns dx = dy (1 - (y / cap)^2), where y is softcap's result. dx may be dy or y.
void softcap_backward(Context& context, const Tensor& dx, const Tensor& dy, const Tensor& y, float cap);
struct SoftcapBackward {
  static constexpr const char* name = "softcap_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, float);
};

// y [T, N] += bias [N] f32.
void add_bias(Context& context, const Tensor& y, const Tensor& bias);
struct AddBias {
  static constexpr const char* name = "add_bias";
  using Signature = void(Context&, const Tensor&, const Tensor&);
};

// dbias [N] f32 (+)= sum over T of dy [T, N], in an order that depends on T only.
void add_bias_backward(Context& context, const Tensor& dbias, const Tensor& dy, bool accumulate);
struct AddBiasBackward {
  static constexpr const char* name = "add_bias_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, bool);
};

struct DropoutAttributes {
  float probability = 0;  // probability that an element becomes 0; the others are divided by 1 - probability
  uint64_t seed = 0;      // key of the random numbers
  uint64_t stream = 0;    // identifies this use of dropout: a function of (step, layer, call site)
  // The number of x's first column, a multiple of 4: x may be these columns of a wider matrix.
  int64_t first_column = 0;
  // `rows` [T] i64: row t of x uses the random numbers of sample rows[t] >> 32 and position rows[t] & 0xffffffff, so a
  // token's mask does not depend on the micro-batch or rank.
};

// y [T, N] = x with dropout. Element (t, n) is kept when uniform(Philox(seed; stream, rows[t], j)) >= probability, with
// j = first_column + n. The Philox counter is (low rows, high rows, j / 4, low stream), the key is seed with high
// stream XORed into its upper word, and word j % 4 of the output is used. The backward is the same op on dy. y may be
// x.
void dropout(Context& context, const Tensor& y, const Tensor& x, const Tensor& rows, DropoutAttributes attributes);
struct Dropout {
  static constexpr const char* name = "dropout";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, DropoutAttributes);
};

// The same for rows that are grouped by expert (ops/moe.h): row n of y and x [N, I] is of token token_of_row[n] (i32
// [N], in [0, T), else ErrorKind::internal) and uses rows[token_of_row[n]] (rows [T] i64). The stream of expert e,
// whose rows are offsets[e] .. offsets[e + 1] (i32 [E + 1]), is attributes.stream + e stream_step; all experts' streams
// have the same upper word.
void grouped_dropout(Context& context, const Tensor& y, const Tensor& x, const Tensor& rows, const Tensor& token_of_row,
                     const Tensor& offsets, DropoutAttributes attributes, int64_t stream_step);
struct GroupedDropout {
  static constexpr const char* name = "grouped_dropout";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         DropoutAttributes, int64_t);
};

}  // namespace ingot::ops
