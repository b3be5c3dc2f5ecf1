#include "nn/linear.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "nn/deferred_gradients.h"
#include "nn/dropout.h"
#include "nn/sliced_sum.h"
#include "nn/transfer.h"
#include "ops/elementwise.h"
#include "ops/linear_bias.h"
#include "ops/linear_fp8.h"
#include "ops/linear_fp8_bytes.h"
#include "ops/linear_int8.h"
#include "ops/linear_int8_bytes.h"
#include "ops/linear_low_rank.h"
#include "ops/lora.h"
#include "ops/lora_bytes.h"
#include "ops/matmul.h"
#include "ops/matmul_bytes.h"

namespace ingot::nn {

namespace {

const LoraWeights* layer_of(const AdapterSegment& segment, size_t parameter) {
  if (!segment.adapter) return nullptr;
  const LoraWeights& layer = segment.adapter->layers[parameter];
  return layer.a ? &layer : nullptr;
}

// The segment whose adapter applies to every row of the layer, or null. Its low-rank term is then fused into the
// layer's gemm and rounded with it. With a single adapter in the batch this holds in every expert and every chunk of
// the loss too.
const AdapterSegment* whole_segment(const Pass& pass, size_t parameter, int64_t rows) {
  if (pass.adapters.size() != 1) return nullptr;
  const AdapterSegment& segment = pass.adapters.front();
  return segment.begin == 0 && segment.end == rows && layer_of(segment, parameter) ? &segment : nullptr;
}

// y = x with the dropout of the adapter's input; row 0 of x is row `begin` of the batch.
void drop(Pass& pass, const Adapter& adapter, const Linear& linear, const Tensor& y, const Tensor& x, int64_t begin) {
  ops::DropoutAttributes attributes = dropout_attributes(pass, adapter, linear.parameter);
  attributes.first_column = linear.first_input;
  ops::dropout(pass.ops, y, x, pass.training->dropout_rows.slice(begin, begin + x.rows()), attributes);
}

// The adapter's input: x, or x with dropout in scratch memory.
Tensor adapter_input(Pass& pass, const Adapter& adapter, const Linear& linear, const Tensor& x, int64_t begin) {
  if (!drops(pass, adapter)) return x;
  const Tensor dropped = pass.ops.scratch.allocate(x.dtype, x.shape);
  drop(pass, adapter, linear, dropped, x, begin);
  return dropped;
}

// Of the gemms whose rows are those of the pass. With sums in slices, columns are a rank's part of the whole layer's.
ops::Invariance row_gemms(const Pass& pass) {
  if (pass.tp.sliced()) return ops::Invariance::slices;
  const bool served = pass.cache != nullptr && !pass.row_invariant;
  return served || pass.fixed_rows ? ops::Invariance::none : ops::Invariance::rows;
}

ops::LinearAttributes linear_attributes(const Pass& pass, bool accumulate) {
  // Outside serving always row-invariant: an expert may have one or two rows in one micro-batch and more in another.
  return {.accumulate = accumulate,
          .row_invariant = pass.row_invariant || pass.cache == nullptr,
          .prefer_skinny = pass.row_invariant,
          .invariance = row_gemms(pass)};
}

// The input features of slice number `slice` of this rank.
spec::Range inputs_of(const Pass& pass, int64_t features, int64_t slice) {
  const int64_t each = features / pass.tp.own_slices;
  return {slice * each, (slice + 1) * each};
}

// factor * input A^T, [T, R], in scratch memory.
Tensor low_rank(Pass& pass, const Adapter& adapter, const LoraWeights& layer, const Linear& linear,
                const Tensor& input) {
  const Tensor low = pass.ops.scratch.allocate(input.dtype, Shape{input.rows(), layer.a.rows()});
  if (linear.row_parallel && pass.tp.sliced()) {
    const Arena::Scope scope(pass.ops.scratch);
    const Tensor total = pass.ops.scratch.allocate(DType::f32, low.shape);
    sum_slices(pass, total, [&](int64_t slice, const Tensor& out) {
      const Arena::Scope own(pass.ops.scratch);
      const spec::Range inputs = inputs_of(pass, linear.weight.in, slice);
      ops::matmul(pass.ops, out, columns_of(pass, input, inputs), columns_of(pass, layer.a, inputs),
                  {.transpose_b = true});
    });
    ops::scale(pass.ops, low, total, adapter.factor);
    return low;
  }
  ops::matmul(pass.ops, low, input, layer.a, {.transpose_b = true, .invariance = row_gemms(pass)});
  ops::scale(pass.ops, low, low, adapter.factor);
  return low;
}

// The gradient of input A^T: factor * dy B, [T, R], in scratch memory.
Tensor low_rank_gradient(Pass& pass, const Adapter& adapter, const LoraWeights& layer, const Linear& linear,
                         const Tensor& dy) {
  const Tensor dlow = pass.ops.scratch.allocate(dy.dtype, Shape{dy.rows(), layer.a.rows()});
  if (linear.column_parallel && pass.tp.sliced()) {
    const Arena::Scope scope(pass.ops.scratch);
    const Tensor total = pass.ops.scratch.allocate(DType::f32, dlow.shape);
    sum_slices(pass, total, [&](int64_t slice, const Tensor& out) {
      bool more = false;
      for (const spec::Range& outputs : linear.outputs_of(pass, slice)) {
        const Arena::Scope own(pass.ops.scratch);
        ops::matmul(pass.ops, out, columns_of(pass, dy, outputs), layer.b.slice(outputs.begin, outputs.end),
                    {.accumulate = more});
        more = true;
      }
    });
    ops::scale(pass.ops, dlow, total, adapter.factor);
    return dlow;
  }
  ops::matmul(pass.ops, dlow, dy, layer.b, {.invariance = row_gemms(pass)});
  ops::scale(pass.ops, dlow, dlow, adapter.factor);
  return dlow;
}

// Calls fn(unit, from, to) for the part of every accumulation unit in rows [begin, end).
template <class Fn>
void for_units(const Pass& pass, int64_t begin, int64_t end, Fn fn) {
  const std::vector<int64_t>& offsets = pass.training->accumulation_offsets;
  for (size_t unit = 0; unit + 1 < offsets.size(); ++unit) {
    const int64_t from = std::max(begin, offsets[unit]);
    const int64_t to = std::min(end, offsets[unit + 1]);
    if (from < to) fn(static_cast<int64_t>(unit), from, to);
  }
}

// gradient (+)= dy^T x for one trainable matrix, one accumulation unit at a time, which has fixed sizes wherever bits
// do not depend on the micro-batch; row 0 of dy and x is row `begin` of the batch.
void matrix_gradient(Pass& pass, int trainable, const Tensor& dy, const Tensor& x, int64_t begin) {
  if (trainable < 0) return;
  GradientAccumulator& accumulator = pass.training->accumulator;
  const ops::Invariance invariance = pass.tp.sliced() ? ops::Invariance::slices : ops::Invariance::none;
  for_units(pass, begin, begin + dy.rows(), [&](int64_t unit, int64_t from, int64_t to) {
    const GradientAccumulator::Slot slot = accumulator.open(trainable, unit, 0);
    ops::matmul(pass.ops, slot.out, dy.slice(from - begin, to - begin), x.slice(from - begin, to - begin),
                {.transpose_a = true, .accumulate = slot.accumulate, .invariance = invariance});
    accumulator.close(trainable, unit, 0);
  });
}

// The gradients of an adapter's A and B. dlow [T, R]: low_rank_gradient of `out`, the segment's rows of dy; x: of the
// whole batch.
void adapter_gradients(Pass& pass, const AdapterSegment& segment, const LoraWeights& layer, const Linear& linear,
                       const Tensor& dlow, const Tensor& out, const Tensor& x) {
  const Adapter& adapter = *segment.adapter;
  const Arena::Scope scope(pass.ops.scratch);
  const Tensor input = adapter_input(pass, adapter, linear, x.slice(segment.begin, segment.end), segment.begin);
  if (layer.b_trainable >= 0)
    matrix_gradient(pass, layer.b_trainable, out, low_rank(pass, adapter, layer, linear, input), segment.begin);
  matrix_gradient(pass, layer.a_trainable, dlow, input, segment.begin);
}

// din += the gradient of the segment's input rows through its adapter, dlow A with dropout's mask: computed in
// `activation` where there is dropout, and added in din's type, which is that or f32.
void add_adapter_input_gradient(Pass& pass, const AdapterSegment& segment, const LoraWeights& layer,
                                const Linear& linear, const Tensor& din, const Tensor& dlow, DType activation) {
  const Adapter& adapter = *segment.adapter;
  const ops::Invariance invariance = row_gemms(pass);
  if (!drops(pass, adapter))
    return ops::matmul(pass.ops, din, dlow, layer.a, {.accumulate = true, .invariance = invariance});
  const Tensor masked = pass.ops.scratch.allocate(activation, din.shape);
  ops::matmul(pass.ops, masked, dlow, layer.a, {.invariance = invariance});
  drop(pass, adapter, linear, masked, masked, segment.begin);
  const bool same = din.dtype == activation;
  const Tensor term = same ? masked : pass.ops.scratch.allocate(din.dtype, din.shape);
  if (!same) ops::scale(pass.ops, term, masked, 1);
  ops::add(pass.ops, din, din, term);
}

}  // namespace

std::vector<spec::Range> Linear::outputs_of(const Pass& pass, int64_t slice) const {
  const TensorParallel& tp = pass.tp;
  if (vocabulary > 0) {  // as spec::vocabulary_of
    const int64_t number = tp.first_slice + slice;
    return {{vocabulary * number / tp.slices - first_output, vocabulary * (number + 1) / tp.slices - first_output}};
  }
  const int64_t all[] = {weight.out};
  std::vector<spec::Range> ranges;
  int64_t begin = 0;
  for (const int64_t count : output_groups.empty() ? std::span<const int64_t>(all) : std::span(output_groups)) {
    const int64_t each = count / tp.own_slices;
    ranges.push_back({begin + slice * each, begin + (slice + 1) * each});
    begin += count;
  }
  return ranges;
}

bool Linear::in_int8(const Pass& pass) const { return pass.int8_activations && ops::has_linear_int8(weight.storage); }

void Linear::forward(Pass& pass, const Tensor& y, const Tensor& x, const Tensor& residual) const {
  if (sums_slices(pass)) return forward_sliced(pass, y, x, residual);
  if (!sums_over_ranks(pass)) return forward_part(pass, y, x, residual);
  const Arena::Scope scope(pass.ops.scratch);
  const Tensor sum = residual ? pass.ops.scratch.allocate(y.dtype, y.shape) : y;
  const Tensor all = memory_of_all_rows(pass, sum, x.rows());
  forward_part(pass, all, x);
  sum_to_own_rows(pass, sum, all);
  if (residual) ops::add(pass.ops, y, residual, sum);
}

void Linear::forward_sliced(Pass& pass, const Tensor& y, const Tensor& x, const Tensor& residual) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const bool in_place = y.dtype == DType::f32 && !residual && y.shape[0] == x.rows();
  const Tensor sum = in_place ? y : scratch.allocate(DType::f32, Shape{x.rows(), y.shape[1]});
  {
    const Arena::Scope inner(scratch);
    const Tensor matrix = backward_weight(pass, x.dtype).tensor();
    sum_slices(pass, sum, [&](int64_t slice, const Tensor& out) {
      const Arena::Scope own(scratch);
      const spec::Range inputs = inputs_of(pass, weight.in, slice);
      ops::matmul(pass.ops, out, columns_of(pass, x, inputs), columns_of(pass, matrix, inputs), {.transpose_b = true});
    });
  }
  add_terms(pass, sum, x, nullptr);
  if (in_place) return;
  const Tensor own = y.shape[0] == x.rows() ? sum : own_rows(pass, sum);
  const Tensor rounded = !residual ? y : y.dtype == DType::f32 ? own : scratch.allocate(y.dtype, y.shape);
  if (rounded.data != own.data) ops::scale(pass.ops, rounded, own, 1);
  if (residual) ops::add(pass.ops, y, residual, rounded);
}

Weight Linear::backward_weight(Pass& pass, DType type) const {
  if (!sums_slices(pass) || (is_plain(weight.storage) && weight.tensor().dtype == type)) return weight;
  const Tensor decoded = pass.ops.scratch.allocate(type, Shape{weight.out, weight.in});
  ops::dequantize(pass.ops, decoded, weight);
  return weight_of(decoded);
}

void Linear::forward_part(Pass& pass, const Tensor& y, const Tensor& x, const Tensor& residual) const {
  const auto linear = in_fp8(pass) ? ops::linear_fp8 : in_int8(pass) ? ops::linear_int8 : ops::linear;
  ops::LinearAttributes attributes = linear_attributes(pass, residual && residual.data == y.data);
  if (!attributes.accumulate) attributes.residual = residual;
  const AdapterSegment* whole = in_fp8(pass) || in_int8(pass) ? nullptr : whole_segment(pass, parameter, x.rows());
  if (whole) {
    const Arena::Scope scope(pass.ops.scratch);
    const Adapter& adapter = *whole->adapter;
    const LoraWeights& layer = adapter.layers[parameter];
    const Tensor low = low_rank(pass, adapter, layer, *this, adapter_input(pass, adapter, *this, x, 0));
    ops::linear_low_rank(pass.ops, y, x, weight, low, layer.b, attributes);
  } else if (bias && linear == ops::linear && !sums_over_ranks(pass)) {
    ops::linear_bias(pass.ops, y, x, weight, bias, attributes);
    return add_low_rank_terms(pass, y, x, nullptr);
  } else {
    linear(pass.ops, y, x, weight, attributes);
  }
  add_terms(pass, y, x, whole);
}

bool Linear::is_gemm(const Pass& pass) const {
  return !bias && (!pass.lora || pass.lora->ranks[parameter] == 0) &&
         std::ranges::none_of(pass.adapters,
                              [&](const AdapterSegment& segment) { return layer_of(segment, parameter) != nullptr; });
}

bool Linear::are_grouped(const Pass& pass, std::span<const Linear* const> layers, int64_t rows) {
  const bool int8 = layers.front()->in_int8(pass);
  return pass.cache != nullptr && std::ranges::all_of(layers, [&](const Linear* layer) {
           return !layer->in_fp8(pass) && !layer->row_parallel && layer->in_int8(pass) == int8 &&
                  (int8 || !whole_segment(pass, layer->parameter, rows));
         });
}

bool Linear::are_gemms(const Pass& pass, std::span<const Linear* const> layers, int64_t rows) {
  return are_grouped(pass, layers, rows) &&
         std::ranges::all_of(layers, [&](const Linear* layer) { return layer->is_gemm(pass); });
}

ops::LinearGroupAttributes Linear::group_attributes(const Pass& pass, const Linear& first) {
  return {.linear = linear_attributes(pass, false), .int8_activations = first.in_int8(pass)};
}

void Linear::forward_each(Pass& pass, std::span<const Linear* const> layers, std::span<const Tensor> y,
                          const Tensor& x) {
  std::array<Weight, 3> weights;
  if (layers.size() > weights.size()) {
    throw_error(ErrorKind::internal, "{} linear layers with one input; at most {}", layers.size(), weights.size());
  }
  if (!are_grouped(pass, layers, x.rows())) {
    for (size_t i = 0; i < layers.size(); ++i) layers[i]->forward(pass, y[i], x);
    return;
  }
  std::ranges::transform(layers, weights.begin(), [](const Linear* layer) { return layer->weight; });
  ops::linear_group(pass.ops, y, x, std::span(weights).first(layers.size()), group_attributes(pass, *layers.front()));
  for (size_t i = 0; i < layers.size(); ++i) layers[i]->add_terms(pass, y[i], x, nullptr);
}

void Linear::add_terms(Pass& pass, const Tensor& y, const Tensor& x, const AdapterSegment* whole) const {
  if (bias && !(sums_over_ranks(pass) && pass.tp.group.rank() > 0)) ops::add_bias(pass.ops, y, bias);
  add_low_rank_terms(pass, y, x, whole);
}

void Linear::add_low_rank_terms(Pass& pass, const Tensor& y, const Tensor& x, const AdapterSegment* whole) const {
  if (pass.lora && pass.lora->ranks[parameter] > 0) {
    ops::lora(pass.ops, y, x, pass.lora->entries, pass.lora->slots,
              {.layer = static_cast<int64_t>(parameter), .rank = pass.lora->ranks[parameter]});
  }
  for (const AdapterSegment& segment : pass.adapters) {
    const LoraWeights* layer = layer_of(segment, parameter);
    if (!layer || whole) continue;
    const Arena::Scope scope(pass.ops.scratch);
    const Tensor input =
        adapter_input(pass, *segment.adapter, *this, x.slice(segment.begin, segment.end), segment.begin);
    const Tensor low = low_rank(pass, *segment.adapter, *layer, *this, input);
    ops::matmul(pass.ops, y.slice(segment.begin, segment.end), low, layer->b,
                {.transpose_b = true, .accumulate = true, .invariance = row_gemms(pass)});
  }
}

bool Linear::has_gradients(const Pass& pass) const {
  return weight_trainable >= 0 || bias_trainable >= 0 ||
         std::ranges::any_of(pass.adapters, [&](const AdapterSegment& segment) {
           const LoraWeights* layer = layer_of(segment, parameter);
           return layer && (layer->a_trainable >= 0 || layer->b_trainable >= 0);
         });
}

void Linear::add_own_gradients(Pass& pass, const Tensor& dy, const Tensor& x) const {
  matrix_gradient(pass, weight_trainable, dy, x, 0);
  if (bias_trainable < 0) return;
  GradientAccumulator& accumulator = pass.training->accumulator;
  for_units(pass, 0, dy.rows(), [&](int64_t unit, int64_t from, int64_t to) {
    const GradientAccumulator::Slot slot = accumulator.open(bias_trainable, unit, 0);
    ops::add_bias_backward(pass.ops, slot.out, dy.slice(from, to), slot.accumulate);
    accumulator.close(bias_trainable, unit, 0);
  });
}

void Linear::add_gradients(Pass& pass, const Tensor& dy, const Tensor& x) const {
  add_own_gradients(pass, dy, x);
  for (const AdapterSegment& segment : pass.adapters) {
    const LoraWeights* layer = layer_of(segment, parameter);
    if (!layer) continue;
    const Arena::Scope scope(pass.ops.scratch);
    const Tensor out = dy.slice(segment.begin, segment.end);
    const Tensor dlow = low_rank_gradient(pass, *segment.adapter, *layer, *this, out);
    adapter_gradients(pass, segment, *layer, *this, dlow, out, x);
  }
}

void Linear::backward(Pass& pass, const Tensor& dx, const Tensor& dy, const Tensor& x, bool accumulate) const {
  const bool in_fp8 = this->in_fp8(pass);
  DeferredGradients* deferred = pass.training->deferred;
  const ops::LinearAttributes attributes{.accumulate = accumulate, .invariance = row_gemms(pass)};
  const Arena::Scope scope(pass.ops.scratch);
  const AdapterSegment* whole = !dx || in_fp8 ? nullptr : whole_segment(pass, parameter, x.rows());
  if (whole && drops(pass, *whole->adapter)) whole = nullptr;  // with dropout its term of dx is not a plain gemm
  Tensor whole_dlow;
  if (whole) {
    const LoraWeights& layer = whole->adapter->layers[parameter];
    whole_dlow = low_rank_gradient(pass, *whole->adapter, layer, *this, dy);
    const Arena::Scope inner(pass.ops.scratch);
    ops::linear_low_rank_backward_input(pass.ops, dx, dy, backward_weight(pass, dy.dtype), whole_dlow, layer.a,
                                        attributes);
  } else if (dx && in_fp8) {
    ops::linear_fp8_backward_input(pass.ops, dx, dy, weight, pass.training->fp8_gradients, attributes);
  } else if (dx) {
    const Arena::Scope inner(pass.ops.scratch);
    ops::linear_backward_input(pass.ops, dx, dy, backward_weight(pass, dy.dtype), attributes);
  }
  if (deferred == nullptr) {
    add_own_gradients(pass, dy, x);
  } else if (has_gradients(pass)) {
    deferred->add(pass, *this, dy, x);
  }
  for (const AdapterSegment& segment : pass.adapters) {
    const LoraWeights* layer = layer_of(segment, parameter);
    if (!layer || (deferred != nullptr && (!dx || whole))) continue;
    const Adapter& adapter = *segment.adapter;
    const Arena::Scope own(pass.ops.scratch);
    const Tensor out = dy.slice(segment.begin, segment.end);
    const Tensor dlow = whole ? whole_dlow : low_rank_gradient(pass, adapter, *layer, *this, out);
    if (deferred == nullptr) adapter_gradients(pass, segment, *layer, *this, dlow, out, x);
    if (!dx || whole) continue;
    add_adapter_input_gradient(pass, segment, *layer, *this, dx.slice(segment.begin, segment.end), dlow, dx.dtype);
  }
}

void Linear::backward_sliced(Pass& pass, const Tensor& dx, std::span<const Linear* const> layers,
                             std::span<const Tensor> dy, const Tensor& x) {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  DeferredGradients* deferred = pass.training->deferred;
  Tensor sum;
  if (dx) {
    const bool in_place = dx.dtype == DType::f32 && dx.shape[0] == x.rows();
    sum = in_place ? dx : scratch.allocate(DType::f32, Shape{x.rows(), dx.shape[1]});
    sum_slices(pass, sum, [&](int64_t slice, const Tensor& out) {
      bool more = false;
      for (size_t i = 0; i < layers.size(); ++i) {
        for (const spec::Range& outputs : layers[i]->outputs_of(pass, slice)) {
          const Arena::Scope own(scratch);
          ops::linear_backward_input(pass.ops, out, columns_of(pass, dy[i], outputs),
                                     layers[i]->weight.slice(outputs.begin, outputs.end), {.accumulate = more});
          more = true;
        }
      }
    });
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const Linear& linear = *layers[i];
    if (deferred == nullptr) {
      linear.add_own_gradients(pass, dy[i], x);
    } else if (linear.has_gradients(pass)) {
      deferred->add(pass, linear, dy[i], x);
    }
    for (const AdapterSegment& segment : pass.adapters) {
      const LoraWeights* layer = layer_of(segment, linear.parameter);
      if (!layer || (deferred != nullptr && !dx)) continue;
      const Adapter& adapter = *segment.adapter;
      const Arena::Scope own(scratch);
      const Tensor out = dy[i].slice(segment.begin, segment.end);
      const Tensor dlow = low_rank_gradient(pass, adapter, *layer, linear, out);
      if (deferred == nullptr) adapter_gradients(pass, segment, *layer, linear, dlow, out, x);
      if (!dx) continue;
      add_adapter_input_gradient(pass, segment, *layer, linear, sum.slice(segment.begin, segment.end), dlow, x.dtype);
    }
  }
  if (dx && sum.data != dx.data) ops::scale(pass.ops, dx, dx.shape[0] == x.rows() ? sum : own_rows(pass, sum), 1);
}

namespace {

// Of a sum in slices and its total.
size_t sum_bytes_of(int64_t rows, int64_t features, const PassShape& shape) {
  return Arena::footprint(DType::f32, Shape{rows * features}) + sum_slices_bytes(rows * features, shape);
}

// Features of one of this rank's slices, of which there are at most so many; 0 where a slice is all of them.
int64_t slice_of(int64_t features, const PassShape& shape) {
  const int64_t own = shape.slices / shape.tp;
  return own > 1 ? features / own + 1 : 0;
}

}  // namespace

size_t Linear::sliced_bytes(int64_t rows, int64_t out, int64_t in, const PassShape& shape) {
  if (shape.slices == 1) return 0;
  const int64_t columns = slice_of(in, shape);
  const size_t decoded = shape.decoded ? shape.matrix_bytes(out, in) : 0;
  const size_t operands = shape.matrix_bytes(rows, columns) + shape.matrix_bytes(out, columns);
  const size_t low_rank = shape.adapter_rank > 0 ? sum_bytes_of(rows, shape.adapter_rank, shape) : 0;
  return sum_bytes_of(rows, out, shape) +
         std::max(decoded + operands, low_rank + operands + shape.matrix_bytes(rows, out));
}

size_t Linear::backward_sliced_bytes(int64_t rows, int64_t out, int64_t in, const PassShape& shape) {
  if (shape.slices == 1) return 0;
  const size_t operand = shape.matrix_bytes(rows, slice_of(out, shape));
  const size_t low_rank = shape.adapter_rank > 0
                              ? std::max(sum_bytes_of(rows, shape.adapter_rank, shape) + operand,
                                         shape.matrix_bytes(rows, in) + Arena::footprint(DType::f32, Shape{rows * in}))
                              : 0;
  return sum_bytes_of(rows, in, shape) + std::max(operand, low_rank);
}

size_t Linear::bytes(int64_t rows, int64_t out, int64_t in, const PassShape& shape, bool may_fp8) {
  // In an fp8 pass, weights of another type than the activations are already in fp8.
  size_t base = shape.fp8 && may_fp8
                    ? ops::linear_fp8_bytes(rows, out, in, !shape.decoded, shape.host_visible)
                    : ops::linear_bytes(rows, out, in, size_of(shape.activation), shape.decoded, shape.host_visible);
  if (shape.int8_activations) base = std::max(base, ops::linear_int8_bytes(rows, in));
  base = std::max(base, ops::linear_bias_bytes(out, size_of(shape.activation), shape.host_visible));
  const int64_t rank = shape.adapter_rank;
  const size_t low_rank = shape.lora_batch ? 0 : 2 * shape.matrix_bytes(rows, rank) + shape.matrix_bytes(rows, in);
  // The low-rank tensors exist while the base gemm runs.
  return rank > 0 ? std::max(base + low_rank, ops::lora_bytes(rows, rank)) : base;
}

}  // namespace ingot::nn
