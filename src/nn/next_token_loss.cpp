#include "nn/next_token_loss.h"

#include <algorithm>

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

void loss_of_piece(Pass& pass, const Head& head, const Tensor& losses, const Tensor& dnormed, const Tensor& normed,
                   const Tensor& targets) {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const Shape shape{normed.rows(), head.linear.weight.out};
  const Tensor logits = scratch.allocate(DType::f32, shape);
  head.forward(pass, logits, normed);
  if (!pass.training) {
    ops::cross_entropy(pass.ops, losses, {}, logits, targets);
    return;
  }
  const bool over_logits = normed.dtype == DType::f32 && head.softcap == 0;
  const Tensor dlogits = over_logits ? logits : scratch.allocate(head.softcap > 0 ? DType::f32 : normed.dtype, shape);
  ops::cross_entropy(pass.ops, losses, dlogits, logits, targets);
  head.backward(pass, dnormed, dlogits, logits, normed);
}

}  // namespace

void NextTokenLoss::compute(Pass& pass, const Head& head, const Tensor& dnormed, const Tensor& normed) const {
  const int64_t chunk = spec::loss_chunk(head.linear.weight.out);
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
  const size_t wide = Arena::footprint(DType::f32, Shape{rows, model.vocab});
  size_t logits = wide;
  if (training && model.final_softcap > 0) logits += wide;
  if (training && shape.activation != DType::f32) logits += shape.matrix_bytes(rows, model.vocab);
  return logits + Linear::bytes(rows, model.vocab, model.hidden, shape, false);
}

}  // namespace ingot::nn
