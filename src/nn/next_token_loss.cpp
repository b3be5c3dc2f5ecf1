#include "nn/next_token_loss.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "nn/sliced_sum.h"
#include "ops/cross_entropy.h"
#include "ops/matmul_bytes.h"
#include "spec/sizes.h"

namespace ingot::nn {

namespace {

// The adapter segments of rows [begin, end), relative to `begin`.
std::vector<AdapterSegment> clip(const std::vector<AdapterSegment>& segments, int64_t begin, int64_t end) {
  std::vector<AdapterSegment> clipped;
  for (const AdapterSegment& segment : segments) {
    const int64_t from = std::max(segment.begin, begin);
    const int64_t to = std::min(segment.end, end);
    if (from < to) clipped.push_back({from - begin, to - begin, segment.adapter});
  }
  return clipped;
}

// lse [P, T]: of the P parts of the vocabulary that this rank has, the logarithms of the sums of exponentials. Assigns
// that of the sum of all parts to lse[0], and losses [T]. at_target [P, T]: each target's logit, 0 in parts that do not
// have it. Added in the order of the parts.
void combine_parts(Pass& pass, const Tensor& losses, const Tensor& lse, const Tensor& at_target, const Tensor& targets,
                   int64_t vocabulary) {
  Device& device = pass.ops.device;
  const auto tokens = static_cast<size_t>(lse.shape[1]), sums = static_cast<size_t>(lse.elements());
  std::vector<float> own(2 * sums), all_losses(tokens);
  std::vector<int32_t> wanted(tokens);
  device.copy_to_host(own.data(), lse.data, lse.bytes());
  device.copy_to_host(own.data() + sums, at_target.data, at_target.bytes());
  device.copy_to_host(wanted.data(), targets.data, targets.bytes());
  const std::vector<std::vector<float>> parts = pass.tp.group.gather(std::span<const float>(own));
  if (parts.size() > 1) pass.tp.count(spec::Collective::all_gather, parts.size() * own.size() * sizeof(float));
  for (size_t t = 0; t < tokens; ++t) {
    if (wanted[t] < -1 || wanted[t] >= vocabulary) {
      throw_error(ErrorKind::internal, "target {} of token {} is outside the vocabulary of {}", wanted[t], t,
                  vocabulary);
    }
    double largest = -INFINITY, total = 0, logit = 0;
    for (const std::vector<float>& of_rank : parts) {
      for (size_t at = t; at < sums; at += tokens) largest = std::max(largest, static_cast<double>(of_rank[at]));
    }
    for (const std::vector<float>& of_rank : parts) {
      for (size_t at = t; at < sums; at += tokens) {
        // Equal ones add 1, also if they are infinite.
        const auto each = static_cast<double>(of_rank[at]);
        total += each == largest ? 1.0 : std::exp(each - largest);
        logit += static_cast<double>(of_rank[sums + at]);
      }
    }
    const double sum = largest + std::log(total);
    own[t] = static_cast<float>(sum);
    all_losses[t] = wanted[t] < 0 ? 0.0F : static_cast<float>(sum - logit);
  }
  device.copy_from_host(lse.data, own.data(), losses.bytes());
  device.copy_from_host(losses.data, all_losses.data(), losses.bytes());
}

void loss_of_piece(Pass& pass, const Head& head, const Tensor& losses, const Tensor& dnormed, const Tensor& normed,
                   const Tensor& targets) {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const bool in_parts = head.is_part() || pass.tp.sliced();
  const int64_t columns = head.linear.weight.out;
  const Shape shape{normed.rows(), head.takes_padding(pass) ? ops::padded_columns(columns) : columns};
  const Tensor logits = scratch.allocate(DType::f32, shape);
  head.forward(pass, logits, normed);
  Tensor lse;
  if (in_parts) {
    const Shape sums{pass.tp.own_slices, normed.rows()};
    const Tensor all = scratch.allocate(DType::f32, sums), at_target = scratch.allocate(DType::f32, sums);
    for (int64_t slice = 0; slice < sums[0]; ++slice) {
      const Arena::Scope own(scratch);
      const auto of_slice = [&](const Tensor& each) { return each.slice(slice, slice + 1).reshape(losses.shape); };
      const spec::Range tokens =
          pass.tp.sliced() ? head.linear.outputs_of(pass, slice).front() : spec::Range{0, shape[1]};
      ops::log_sum_exp(pass.ops, of_slice(all), of_slice(at_target), columns_of(pass, logits, tokens), targets,
                       head.first + tokens.begin);
    }
    combine_parts(pass, losses, all, at_target, targets, head.vocabulary);
    lse = all.slice(0, 1).reshape(losses.shape);
  }
  if (!pass.training) {
    if (!in_parts) ops::cross_entropy(pass.ops, losses, {}, logits, targets);
    return;
  }
  const bool over_logits = normed.dtype == DType::f32 && head.softcap == 0;
  const Tensor dlogits = over_logits ? logits : scratch.allocate(head.softcap > 0 ? DType::f32 : normed.dtype, shape);
  if (in_parts) {
    ops::softmax_gradient(pass.ops, dlogits, logits, lse, targets, head.first);
  } else {
    ops::cross_entropy(pass.ops, losses, dlogits, logits, targets);
  }
  head.backward(pass, dnormed, dlogits, logits, normed);
}

}  // namespace

void NextTokenLoss::compute(Pass& pass, const Head& head, const Tensor& dnormed, const Tensor& normed) const {
  const int64_t chunk = spec::loss_chunk(head.vocabulary, pass.ops.device.host_visible());
  const std::vector<int64_t> whole = {0, normed.rows()};
  const std::vector<int64_t>& units = pass.training ? pass.training->accumulation_offsets : whole;
  for (size_t unit = 0; unit + 1 < units.size(); ++unit) {
    for (int64_t begin = units[unit]; begin < units[unit + 1]; begin += chunk) {
      const int64_t end = std::min(begin + chunk, units[unit + 1]);
      Pass piece = pass;
      piece.adapters = clip(pass.adapters, begin, end);
      piece.fixed_rows = pass.training != nullptr;
      std::optional<Training> training;
      if (pass.training) piece.training = &training.emplace(pass.training->rows(begin, end));
      loss_of_piece(piece, head, losses_.slice(begin, end), dnormed ? dnormed.slice(begin, end) : Tensor{},
                    normed.slice(begin, end), targets_.slice(begin, end));
    }
  }
}

size_t NextTokenLoss::bytes(const spec::ModelSpec& model, const PassShape& shape, bool training) {
  const int64_t rows = std::min(shape.tokens, spec::loss_chunk(model.vocab, shape.host_visible));
  const int64_t own = (model.vocab + shape.tp - 1) / shape.tp;  // at most
  const int64_t columns = shape.host_visible ? own : ops::padded_columns(own);
  const size_t wide = Arena::footprint(DType::f32, Shape{rows, columns});
  size_t logits = wide;
  if (training && model.final_softcap > 0) logits += wide;
  if (training && shape.activation != DType::f32) logits += shape.matrix_bytes(rows, columns);
  const int64_t slices = shape.slices / shape.tp;  // of this rank, with more than one
  size_t sums = 0;
  if (shape.tp > 1 || shape.slices > 1)
    sums = 2 * Arena::footprint(DType::f32, Shape{std::max<int64_t>(1, slices) * rows});
  const size_t slice = slices > 1 ? Arena::footprint(DType::f32, Shape{rows * (columns / slices + 1)}) : 0;
  return logits + sums +
         std::max(slice, Linear::bytes(rows, columns, model.hidden, shape, false) +
                             Linear::backward_sliced_bytes(rows, columns, model.hidden, shape));
}

}  // namespace ingot::nn
