#include "nn/next_token_loss.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/cross_entropy.h"
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

// The training state for rows [begin, end). Accumulation units keep their indices.
Training clip(const Training& training, int64_t begin, int64_t end) {
  Training part = training;
  for (int64_t& offset : part.accumulation_offsets) offset = std::clamp(offset, begin, end) - begin;
  if (part.dropout_rows) part.dropout_rows = training.dropout_rows.slice(begin, end);
  return part;
}

// Replaces lse [T], the logarithms of each rank's sums of exponentials, by that of their sum, and assigns losses [T].
// at_target [T]: each target's logit, 0 on ranks that do not have it. Added in the order of ranks.
void combine_parts(Pass& pass, const Tensor& losses, const Tensor& lse, const Tensor& at_target, const Tensor& targets,
                   int64_t vocabulary) {
  Device& device = pass.ops.device;
  const auto tokens = static_cast<size_t>(lse.elements());
  std::vector<float> own(2 * tokens), all_losses(tokens);
  std::vector<int32_t> wanted(tokens);
  device.copy_to_host(own.data(), lse.data, lse.bytes());
  device.copy_to_host(own.data() + tokens, at_target.data, at_target.bytes());
  device.copy_to_host(wanted.data(), targets.data, targets.bytes());
  const std::vector<std::vector<float>> parts = pass.tp.group.gather(std::span<const float>(own));
  for (size_t t = 0; t < tokens; ++t) {
    if (wanted[t] < -1 || wanted[t] >= vocabulary) {
      throw_error(ErrorKind::internal, "target {} of token {} is outside the vocabulary of {}", wanted[t], t,
                  vocabulary);
    }
    double largest = -INFINITY, total = 0, logit = 0;
    for (const std::vector<float>& part : parts) largest = std::max(largest, static_cast<double>(part[t]));
    for (const std::vector<float>& part : parts) {
      // Equal ones add 1, also if they are infinite.
      const auto each = static_cast<double>(part[t]);
      total += each == largest ? 1.0 : std::exp(each - largest);
      logit += static_cast<double>(part[tokens + t]);
    }
    const double sum = largest + std::log(total);
    own[t] = static_cast<float>(sum);
    all_losses[t] = wanted[t] < 0 ? 0.0F : static_cast<float>(sum - logit);
  }
  device.copy_from_host(lse.data, own.data(), lse.bytes());
  device.copy_from_host(losses.data, all_losses.data(), losses.bytes());
}

void loss_of_piece(Pass& pass, const Head& head, const Tensor& losses, const Tensor& dnormed, const Tensor& normed,
                   const Tensor& targets) {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const Shape shape{normed.rows(), head.linear.weight.out};
  const Tensor logits = scratch.allocate(DType::f32, shape);
  head.forward(pass, logits, normed);
  Tensor lse;
  if (head.is_part()) {
    lse = scratch.allocate(DType::f32, losses.shape);
    const Tensor at_target = scratch.allocate(DType::f32, losses.shape);
    ops::log_sum_exp(pass.ops, lse, at_target, logits, targets, head.first);
    combine_parts(pass, losses, lse, at_target, targets, head.vocabulary);
  }
  if (!pass.training) {
    if (!head.is_part()) ops::cross_entropy(pass.ops, losses, {}, logits, targets);
    return;
  }
  const bool over_logits = normed.dtype == DType::f32 && head.softcap == 0;
  const Tensor dlogits = over_logits ? logits : scratch.allocate(head.softcap > 0 ? DType::f32 : normed.dtype, shape);
  if (head.is_part()) {
    ops::softmax_gradient(pass.ops, dlogits, logits, lse, targets, head.first);
  } else {
    ops::cross_entropy(pass.ops, losses, dlogits, logits, targets);
  }
  head.backward(pass, dnormed, dlogits, logits, normed);
}

}  // namespace

void NextTokenLoss::compute(Pass& pass, const Head& head, const Tensor& dnormed, const Tensor& normed) const {
  const int64_t chunk = spec::loss_chunk(head.vocabulary);
  const std::vector<int64_t> whole = {0, normed.rows()};
  const std::vector<int64_t>& units = pass.training ? pass.training->accumulation_offsets : whole;
  for (size_t unit = 0; unit + 1 < units.size(); ++unit) {
    for (int64_t begin = units[unit]; begin < units[unit + 1]; begin += chunk) {
      const int64_t end = std::min(begin + chunk, units[unit + 1]);
      Pass piece = pass;
      piece.adapters = clip(pass.adapters, begin, end);
      std::optional<Training> training;
      if (pass.training) piece.training = &training.emplace(clip(*pass.training, begin, end));
      loss_of_piece(piece, head, losses_.slice(begin, end), dnormed ? dnormed.slice(begin, end) : Tensor{},
                    normed.slice(begin, end), targets_.slice(begin, end));
    }
  }
}

size_t NextTokenLoss::bytes(const spec::ModelSpec& model, const PassShape& shape, bool training) {
  const int64_t rows = std::min(shape.tokens, spec::loss_chunk(model.vocab));
  const int64_t columns = (model.vocab + shape.tp - 1) / shape.tp;  // the largest part
  const size_t wide = Arena::footprint(DType::f32, Shape{rows, columns});
  size_t logits = wide;
  if (training && model.final_softcap > 0) logits += wide;
  if (training && shape.activation != DType::f32) logits += shape.matrix_bytes(rows, columns);
  const size_t sums = shape.tp > 1 ? 2 * Arena::footprint(DType::f32, Shape{rows}) : 0;
  return logits + sums + Linear::bytes(rows, columns, model.hidden, shape, false);
}

}  // namespace ingot::nn
