#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "nn/expert_exchange.h"
#include "nn/head_exchange.h"
#include "nn/key_value_gather.h"
#include "nn/key_value_ring.h"
#include "nn/next_token_loss.h"
#include "nn/row_exchange.h"
#include "nn/transfer.h"
#include "ops/adamw_bytes.h"
#include "ops/fixed_sum.h"
#include "train/step.h"
#include "train/step_schedule.h"

namespace ingot::train {

namespace {

models::PassShape pass_shape(const StepSettings& settings, int64_t adapter_rank, bool decoded, int threads,
                             bool host_visible, const ShardSpec& share) {
  models::PassShape shape;
  shape.tokens = settings.micro * settings.accumulation_unit * settings.sequence_length / share.cp;
  shape.longest = settings.sequence_length;
  shape.adapter_rank = adapter_rank;
  shape.activation = settings.activation;
  shape.fp8 = settings.fp8;
  shape.decoded = decoded;
  shape.threads = threads;
  shape.host_visible = host_visible;
  shape.tp = share.tp();
  shape.sequence_parallel = share.sequence_parallel();
  shape.cp = share.cp;
  shape.cp_comm_type = share.cp_comm_type;
  shape.slices = share.sum_slices;
  return shape;
}

// Elements of the largest tensor whose squares are summed.
int64_t max_elements(const spec::ModelSpec& model, const ShardSpec& share, int64_t tokens) {
  int64_t elements = tokens;
  for (const spec::HeldParameter& p : spec::held_parameters(model, share.shards))
    elements = std::max(elements, p.held.elements());
  return elements;
}

// At most two tensors per parameter (a low-rank pair) are trainable.
int64_t max_trainable(const spec::ModelSpec& model) { return 2 * static_cast<int64_t>(spec::parameters(model).size()); }

// Maximum ops::sum_squares blocks in the trainable tensors: the parameters, or a low-rank pair of each. With slices, a
// tensor has at most two blocks for as many elements as one block can have, and three for the ends of each slice.
int64_t max_blocks(const spec::ModelSpec& model, int64_t adapter_rank, int64_t slices) {
  int64_t blocks = 0;
  for (const spec::ParamSpec& p : spec::parameters(model)) {
    const int64_t sides = std::accumulate(p.shape.begin(), p.shape.end(), int64_t{0});
    const int64_t whole = std::max(p.elements(), adapter_rank * sides) / ops::sum_squares_block;
    blocks += slices > 1 ? 2 * whole + (adapter_rank > 0 ? 2 : 1) * 3 * slices : whole + 2;
  }
  return blocks;
}

// Of Step::sum_square_blocks: a copy of a block of a tensor with at most so many elements.
size_t block_bytes(const spec::ModelSpec& model, int64_t elements, int64_t slices) {
  if (slices == 1) return 0;
  const int64_t block = std::max(ops::sum_squares_block, spec::longest_row(model));
  return Arena::footprint(DType::f32, Shape{std::min(elements, block)});
}

size_t message_bytes(const spec::ModelSpec& model, const models::PassShape& shape) {
  return Arena::footprint(shape.activation, Shape{shape.own_rows(shape.tokens), model.hidden});
}

// Of what context-parallel ranks send through host memory. `tokens`: of a rank.
size_t context_parallel_bytes(const spec::ModelSpec& model, const StepSettings& settings, const ShardSpec& share,
                              int64_t tokens) {
  switch (share.cp_comm_type) {
    case spec::CpCommType::a2a:
      return nn::HeadExchange::workspace_bytes(
          nn::HeadExchange::largest_bytes(model, share.tp(), tokens, settings.activation));
    case spec::CpCommType::allgather:
      return nn::RowExchange::workspace_bytes(
          nn::KeyValueGather::largest_bytes(model, share.tp(), tokens * share.cp, settings.activation));
    case spec::CpCommType::p2p:
      return nn::KeyValueRing::workspace_bytes(nn::KeyValueRing::largest_bytes(model, share.tp(), tokens));
  }
  throw_error(ErrorKind::internal, "no such communication of context-parallel ranks");
}

// Of one micro-batch in one of the parts.
spec::SavedBytes saved_bytes(const spec::ModelSpec& model, const StepSettings& settings, const spec::ModelShard& shard,
                             int64_t lowest_trainable_layer, int64_t tokens) {
  const spec::ModelSpec sizes = spec::sizes_of(model, shard);
  const auto activation = static_cast<int64_t>(size_of(settings.activation));
  const int64_t blocks = sizes.num_layers() - spec::backward_end(model, shard, lowest_trainable_layer).lowest_layer;
  spec::SavedBytes bytes = spec::saved_bytes(sizes, settings.recompute, activation, tokens, blocks, shard);
  if (shard.pp > 1 && spec::separates_weight_gradients(settings.schedule))
    bytes.own += spec::deferred_gradient_bytes(sizes, settings.recompute, activation, tokens, blocks, shard);
  return bytes;
}

}  // namespace

StepBytes Step::bytes(const spec::ModelSpec& model, const StepSettings& settings, int64_t lowest_trainable_layer,
                      int64_t adapter_rank, bool decoded, int threads, size_t update_bytes, bool host_visible,
                      const ShardSpec& share) {
  const models::PassShape shape = pass_shape(settings, adapter_rank, decoded, threads, host_visible, share);
  const int64_t elements = max_elements(model, share, shape.tokens);
  const size_t accumulator = settings.accumulation_units > 0 ? FixedPointAccumulator::bytes(elements)
                                                             : 0;  // used while a layer's scratch is allocated
  const auto objective = [&](bool training) { return nn::NextTokenLoss::bytes(model, shape, training); };
  StepBytes bytes;
  const size_t squares = ops::sum_squares_bytes(elements) + block_bytes(model, elements, share.sum_slices);
  bytes.scratch = std::max(squares, update_bytes);
  for (const spec::ModelShard& shard : share.shards) {
    const spec::SavedBytes saved = saved_bytes(model, settings, shard, lowest_trainable_layer, shape.tokens);
    bytes.saved = std::max(bytes.saved, saved.own);
    bytes.shared = std::max(bytes.shared, saved.shared);
    const models::PassBytes pass = models::pass_bytes(spec::sizes_of(model, shard), shape);
    const size_t loss = shard.last() ? pass.loss_input + pass.loss_gradient + objective(true) : 0;
    bytes.scratch = std::max(bytes.scratch, std::max({pass.forward, loss, pass.backward}) + accumulator);
    if (shard.last()) bytes.scratch = std::max(bytes.scratch, pass.loss_input + objective(false));
  }
  if (share.cp > 1 && !host_visible) bytes.exchange = context_parallel_bytes(model, settings, share, shape.tokens);
  if (share.sequence_parallel() && !host_visible) {
    bytes.exchange += nn::RowExchange::workspace_bytes(static_cast<size_t>(shape.tokens * model.hidden) *
                                                       size_of(settings.activation));
  }
  if (share.ep() > 1 && !host_visible) {
    bytes.exchange += nn::ExpertExchange::largest_bytes(model, share.shards, shape.tokens, settings.activation);
  }
  if (share.tp() > 1 && !host_visible) bytes.scratch += nn::DeviceSum::bytes();
  const AtOnce most = at_once(model, settings, share, lowest_trainable_layer);
  bytes.saved = bytes.saved * static_cast<size_t>(most.saved) + bytes.shared;
  bytes.messages = static_cast<size_t>(most.messages) * message_bytes(model, shape);
  if (!host_visible) bytes.exchange += bytes.messages;
  // Micro-batches, one of which is uploaded ahead; sums of squared gradients and losses; the update decision; sums of
  // squares by block.
  bytes.batch = BatchUploader::bytes(shape.tokens * share.cp, most.micro_batches + 1, share.cp) +
                Arena::footprint(DType::f64, Shape{max_trainable(model)}) + Arena::footprint(DType::f64, Shape{1}) +
                Arena::footprint(DType::f64, Shape{3}) +
                Arena::footprint(DType::f64, Shape{max_blocks(model, adapter_rank, share.sum_slices)});
  return bytes;
}

}  // namespace ingot::train
