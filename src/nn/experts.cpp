#include "nn/experts.h"

#include <algorithm>
#include <optional>

#include "nn/expert_exchange.h"
#include "nn/row_exchange.h"
#include "nn/transfer.h"
#include "ops/elementwise.h"
#include "ops/moe.h"

namespace ingot::nn {

namespace {

Tensor flat(const Tensor& x) { return x.reshape(Shape{x.elements()}); }

// A Pass over the grouped rows of one expert.
class ExpertPass {
 public:
  // `tokens`: the batch token of each row, ascending.
  ExpertPass(Pass& whole, std::span<const int32_t> tokens) : pass_(whole) {
    const auto row_of = [&](int64_t token) {
      return static_cast<int64_t>(std::lower_bound(tokens.begin(), tokens.end(), token) - tokens.begin());
    };
    pass_.adapters.clear();
    for (const AdapterSegment& segment : whole.adapters) {
      const int64_t begin = row_of(segment.begin);
      const int64_t end = row_of(segment.end);
      if (begin < end) pass_.adapters.push_back({begin, end, segment.adapter});
    }
    if (whole.lora) {
      LoraBatch& lora = lora_.emplace(*whole.lora);
      lora.host.clear();
      for (const int32_t token : tokens) lora.host.push_back(whole.lora->host[static_cast<size_t>(token)]);
      lora.slots = whole.ops.scratch.allocate(DType::i32, Shape{static_cast<int64_t>(lora.host.size())});
      whole.ops.device.copy_from_host(lora.slots.data, lora.host.data(), lora.slots.bytes());
      pass_.lora = &lora;
    }
    if (!whole.training) return;
    Training& training = training_.emplace(*whole.training);
    training.deferred = nullptr;  // its rows are not the batch's
    for (int64_t& offset : training.accumulation_offsets) offset = row_of(offset);
    if (training.dropout_rows) {
      Device& device = whole.ops.device;
      std::vector<int64_t> all(static_cast<size_t>(training.dropout_rows.elements()));
      device.copy_to_host(all.data(), training.dropout_rows.data, training.dropout_rows.bytes());
      std::vector<int64_t> own;
      for (const int32_t token : tokens) own.push_back(all[static_cast<size_t>(token)]);
      training.dropout_rows = whole.ops.scratch.allocate(DType::i64, Shape{static_cast<int64_t>(own.size())});
      device.copy_from_host(training.dropout_rows.data, own.data(), training.dropout_rows.bytes());
    }
    pass_.training = &training;
  }

  Pass& pass() { return pass_; }

 private:
  Pass pass_;
  std::optional<LoraBatch> lora_;
  std::optional<Training> training_;
};

// A pass over the tokens of all expert-parallel ranks, which have the same number each, and at most one adapter.
class AllTokensPass {
 public:
  AllTokensPass(Pass& own, int64_t tokens) : pass_(own) {
    for (AdapterSegment& segment : pass_.adapters) segment = {0, own.ep->ranks() * tokens, segment.adapter};
    if (!own.training) return;
    Training& training = training_.emplace(*own.training);
    training.accumulation_offsets = {0};
    for (int64_t rank = 0; rank < own.ep->ranks(); ++rank) {
      for (size_t unit = 1; unit < own.training->accumulation_offsets.size(); ++unit)
        training.accumulation_offsets.push_back(rank * tokens + own.training->accumulation_offsets[unit]);
    }
    const auto drops = [](const AdapterSegment& segment) { return segment.adapter && segment.adapter->dropout > 0; };
    training.dropout_rows = {};  // own tokens' only
    if (std::ranges::any_of(pass_.adapters, drops)) {
      training.dropout_rows = own.ops.scratch.allocate(DType::i64, Shape{own.ep->ranks() * tokens});
      own.ep->gather(own.ops, training.dropout_rows, own.training->dropout_rows);
    }
    pass_.training = &training;
  }

  Pass& pass() { return pass_; }

 private:
  Pass pass_;
  std::optional<Training> training_;
};

// The state's first `rows` grouped rows, with `expert_out` for their results.
BlockState rows_of(const BlockState& state, int64_t rows, const Tensor& expert_out) {
  BlockState part = state;
  for (Tensor BlockState::* tensor :
       {&BlockState::grouped, &BlockState::gate, &BlockState::up, &BlockState::activated}) {
    if (part.*tensor) part.*tensor = (state.*tensor).slice(0, rows);
  }
  part.expert_out = expert_out;
  return part;
}

// The slice of the state for one expert's rows [begin, end).
BlockState part_of(const BlockState& state, bool gated, int64_t begin, int64_t end) {
  BlockState part;
  part.mlp_normed = state.grouped.slice(begin, end);
  if (gated) part.gate = state.gate.slice(begin, end);
  part.up = state.up.slice(begin, end);
  part.activated = state.activated.slice(begin, end);
  return part;
}

// Calls fn(expert, pass, begin, end) for every expert that has rows.
template <class Groups, class Fn>
void for_experts(Pass& pass, const Groups& groups, Fn fn) {
  const std::span<const int32_t> tokens = groups.token_of_row;
  for (size_t e = 0; e + 1 < groups.offsets.size(); ++e) {
    const int64_t begin = groups.offsets[e];
    const int64_t end = groups.offsets[e + 1];
    if (begin == end) continue;
    const Arena::Scope scope(pass.ops.scratch);
    ExpertPass own(pass, tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    fn(e, own.pass(), begin, end);
  }
}

// Adds a zero gradient for an expert that no token selected, unless it has a contribution already.
void no_gradient(Pass& pass, const Linear& linear) {
  const auto zero = [&](int trainable) {
    GradientAccumulator& accumulator = pass.training->accumulator;
    if (trainable < 0 || accumulator.has(trainable)) return;
    const Tensor out = accumulator.open(trainable, 0, 0).out;
    const std::vector<std::byte> zeros(out.bytes());
    pass.ops.device.copy_from_host(out.data, zeros.data(), zeros.size());
    accumulator.close(trainable, 0, 0);
  };
  zero(linear.weight_trainable);
  zero(linear.bias_trainable);
  for (const AdapterSegment& segment : pass.adapters) {
    if (!segment.adapter) continue;
    const LoraWeights& layer = segment.adapter->layers[linear.parameter];
    if (!layer.a) continue;
    zero(layer.a_trainable);
    zero(layer.b_trainable);
  }
}

}  // namespace

// On the host: the first row of each expert, and the token of each row.
struct Experts::HostGroups {
  std::vector<int64_t> offsets;
  std::vector<int32_t> token_of_row;
};

Experts::HostGroups Experts::host_groups(const Pass& pass, const BlockState& state) {
  Device& device = pass.ops.device;
  const auto experts = static_cast<size_t>(state.router.shape[1]);
  HostGroups groups;
  groups.token_of_row.resize(static_cast<size_t>(state.token_of_row.elements()));
  device.copy_to_host(groups.token_of_row.data(), state.token_of_row.data, state.token_of_row.bytes());
  std::vector<int32_t> chosen(groups.token_of_row.size());
  device.copy_to_host(chosen.data(), state.topk_ids.data, state.topk_ids.bytes());
  groups.offsets.assign(experts + 1, 0);
  for (const int32_t e : chosen) ++groups.offsets[static_cast<size_t>(e) + 1];
  for (size_t e = 0; e < experts; ++e) groups.offsets[e + 1] += groups.offsets[e];
  return groups;
}

void Experts::add(const Mlp& mlp) {
  if (mlp.gate) gates_.push_back(mlp.gate.weight);
  ups_.push_back(mlp.up.weight);
  downs_.push_back(mlp.down.weight);
  mlps_.push_back(mlp);
}

bool Experts::is_grouped(const Pass& pass) const {
  return !pass.ops.device.host_visible() && !pass.tp.sliced() && gate().supports(pass) && up().supports(pass) &&
         down().supports(pass);
}

// Fills state.token_of_row and state.row_of_choice, from state.topk_ids. The offsets are in scratch memory.
ExpertGroups Experts::groups(Pass& pass, const BlockState& state) const {
  ExpertGroups groups{.offsets = pass.ops.scratch.allocate(DType::i32, Shape{state.router.shape[1] + 1}),
                      .token_of_row = flat(state.token_of_row),
                      .tokens = state.topk_ids.rows()};
  ops::moe_group(pass.ops, groups.token_of_row, flat(state.row_of_choice), groups.offsets, state.topk_ids);
  return groups;
}

void Experts::forward(Pass& pass, const Tensor& out, BlockState& state, const Tensor& residual) const {
  router.forward(pass, state.router, state.mlp_normed);
  ops::moe_route(pass.ops, state.topk_ids, state.topk_weights, state.router);
  pass.ep != nullptr ? forward_exchanged(pass, state) : forward_here(pass, state);
  if (!out) return;
  const auto combine = [&](const Tensor& rows, bool added) {
    ops::combine_rows(pass.ops, rows, state.expert_out, state.row_of_choice, state.topk_weights, added);
  };
  const bool whole = pass.tp.sliced() || (pass.tp.group.size() == 1 && pass.tp.rows == nullptr);  // experts' outputs
  const Arena::Scope scope(pass.ops.scratch);
  if (whole) {
    const Tensor all = memory_of_all_rows(pass, out, state.mlp_normed.rows());
    if (all.data == out.data) {
      if (residual && residual.data != out.data) ops::scale(pass.ops, out, residual, 1);
      return combine(out, static_cast<bool>(residual));
    }
    // Added in the same rounding as without sequence parallelism.
    pass.ops.device.fill_zero(all.data, all.bytes());
    const Tensor own = own_rows(pass, all);
    if (residual) ops::scale(pass.ops, own, residual, 1);
    combine(all, static_cast<bool>(residual));
    return ops::scale(pass.ops, out, own, 1);
  }
  const Tensor sum = residual ? pass.ops.scratch.allocate(out.dtype, out.shape) : out;
  const Tensor all = memory_of_all_rows(pass, sum, state.mlp_normed.rows());
  combine(all, false);
  sum_to_own_rows(pass, sum, all);
  if (residual) ops::add(pass.ops, out, residual, sum);
}

void Experts::forward_here(Pass& pass, BlockState& state) const {
  const Arena::Scope scope(pass.ops.scratch);
  const ExpertGroups rows = groups(pass, state);
  ops::gather_rows(pass.ops, state.grouped, state.mlp_normed, rows.token_of_row);
  is_grouped(pass) ? forward_grouped(pass, rows, state) : forward_by_expert(pass, host_groups(pass, state), state);
}

void Experts::forward_exchanged(Pass& pass, BlockState& state) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const ExpertGroups own = groups(pass, state);
  const ExpertExchange::Rows rows = pass.ep->rows(pass.ops, own.offsets, own.token_of_row, own.tokens);
  const Tensor& back = state.expert_out;
  BlockState all = rows_of(state, rows.count(), {});
  {
    const Arena::Scope sending(scratch);
    const Tensor sent = scratch.allocate(back.dtype, back.shape);
    ops::gather_rows(pass.ops, sent, state.mlp_normed, own.token_of_row);
    pass.ep->dispatch(pass.ops, all.grouped, sent, rows);
  }
  all.expert_out = scratch.allocate(back.dtype, all.grouped.shape);
  {
    const Arena::Scope computing(scratch);
    AllTokensPass every(pass, own.tokens);
    rows.count() > 0 && is_grouped(pass) ? forward_grouped(every.pass(), rows.groups, all)
                                         : forward_by_expert(every.pass(), {rows.offsets, rows.token_of_row}, all);
  }
  pass.ep->combine(pass.ops, back, all.expert_out, rows);
}

void Experts::forward_grouped(Pass& pass, const ExpertGroups& groups, BlockState& state) const {
  if (!gates_.empty()) gate().forward(pass, groups, state.gate, state.grouped);
  up().forward(pass, groups, state.up, state.grouped);
  mlps_.front().recompute_activations(pass, state);
  down().forward(pass, groups, state.expert_out, state.activated);
}

void Experts::forward_by_expert(Pass& pass, const HostGroups& groups, BlockState& state) const {
  for_experts(pass, groups, [&](size_t e, Pass& own, int64_t begin, int64_t end) {
    BlockState part = part_of(state, static_cast<bool>(mlps_[e].gate), begin, end);
    if (pass.tp.sliced()) {
      mlps_[e].forward(own, state.expert_out.slice(begin, end), part);
    } else {
      mlps_[e].forward_part(own, state.expert_out.slice(begin, end), part);
    }
  });
}

void Experts::recompute_activations(Pass& pass, BlockState& state) const {
  ops::gather_rows(pass.ops, state.grouped, state.mlp_normed, flat(state.token_of_row));
  mlps_.front().recompute_activations(pass, state);  // the activation, which is the same in all experts
}

void Experts::backward(Pass& pass, const Tensor& dnormed, const Tensor& dout, BlockState& state) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const Tensor& dexpert_out = state.expert_out;
  const Tensor dtopk_weights = scratch.allocate(DType::f32, state.topk_weights.shape);
  ops::combine_rows_backward(pass.ops, dexpert_out, dtopk_weights, dout, state.expert_out, state.row_of_choice,
                             state.topk_weights);
  if (!pass.tp.sliced()) sum_over_ranks(pass, dtopk_weights);  // of what each rank has of the experts' outputs
  const Tensor dgrouped = scratch.allocate(dexpert_out.dtype, dexpert_out.shape);
  pass.ep != nullptr ? backward_exchanged(pass, dgrouped, state) : backward_here(pass, dgrouped, state);
  const Tensor all = memory_of_all_rows(pass, dnormed, dout.rows());
  ops::combine_rows(pass.ops, all, dgrouped, state.row_of_choice, {}, false);
  if (!pass.tp.sliced()) sum_to_own_rows(pass, dnormed, all);
  const Tensor drouter = scratch.allocate(state.router.dtype, state.router.shape);
  ops::moe_route_backward(pass.ops, drouter, dtopk_weights, state.topk_ids, state.topk_weights);
  const bool is_own = all.data != dnormed.data;  // dnormed has this rank's rows
  router.backward(pass, all, drouter, state.mlp_normed, !is_own || pass.tp.sliced());
  if (!is_own) return;
  const Tensor own = own_rows(pass, all);
  pass.tp.sliced() ? ops::scale(pass.ops, dnormed, own, 1) : ops::add(pass.ops, dnormed, dnormed, own);
}

void Experts::backward_here(Pass& pass, const Tensor& dgrouped, BlockState& state) const {
  const Arena::Scope scope(pass.ops.scratch);
  is_grouped(pass) ? backward_grouped(pass, groups(pass, state), dgrouped, state)
                   : backward_by_expert(pass, host_groups(pass, state), dgrouped, state);
}

void Experts::backward_exchanged(Pass& pass, const Tensor& dgrouped, BlockState& state) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const ExpertGroups own = groups(pass, state);
  const ExpertExchange::Rows rows = pass.ep->rows(pass.ops, own.offsets, own.token_of_row, own.tokens);
  const Shape shape{rows.count(), dgrouped.shape[1]};
  BlockState all = rows_of(state, rows.count(), scratch.allocate(dgrouped.dtype, shape));
  pass.ep->dispatch(pass.ops, all.expert_out, state.expert_out, rows);
  const Tensor drows = scratch.allocate(dgrouped.dtype, shape);
  {
    const Arena::Scope computing(scratch);
    AllTokensPass every(pass, own.tokens);
    if (pass.training->recompute == spec::Recompute::selective && rows.count() > 0)
      mlps_.front().recompute_activations(pass, all);
    rows.count() > 0 && is_grouped(pass)
        ? backward_grouped(every.pass(), rows.groups, drows, all)
        : backward_by_expert(every.pass(), {rows.offsets, rows.token_of_row}, drows, all);
  }
  pass.ep->combine(pass.ops, dgrouped, drows, rows);
}

// As Mlp::backward, but with the gradient of the activation in the place of the activation.
void Experts::backward_grouped(Pass& pass, const ExpertGroups& rows, const Tensor& dgrouped, BlockState& state) const {
  const Tensor& dactivated = state.activated;
  down().backward(pass, rows, dactivated, state.expert_out, state.activated, false);
  const ops::Activation activation = mlps_.front().activation;
  if (gates_.empty()) {
    ops::activation_backward(pass.ops, state.up, dactivated, state.up, activation);
  } else {
    ops::glu_backward(pass.ops, state.gate, state.up, dactivated, state.gate, state.up, activation);
    gate().backward(pass, rows, dgrouped, state.gate, state.grouped, false);
  }
  up().backward(pass, rows, dgrouped, state.up, state.grouped, !gates_.empty());
}

void Experts::backward_by_expert(Pass& pass, const HostGroups& groups, const Tensor& dgrouped,
                                 BlockState& state) const {
  for_experts(pass, groups, [&](size_t e, Pass& own, int64_t begin, int64_t end) {
    BlockState part = part_of(state, static_cast<bool>(mlps_[e].gate), begin, end);
    const Tensor dx = dgrouped.slice(begin, end), dy = state.expert_out.slice(begin, end);
    pass.tp.sliced() ? mlps_[e].backward(own, dx, dy, part) : mlps_[e].backward_part(own, dx, dy, part);
  });
  for (size_t e = 0; e < mlps_.size(); ++e) {
    if (groups.offsets[e] != groups.offsets[e + 1]) continue;
    for (const Linear* linear : {&mlps_[e].gate, &mlps_[e].up, &mlps_[e].down}) no_gradient(pass, *linear);
  }
}

std::vector<Linear*> Experts::linears() {
  std::vector<Linear*> all = {&router};
  for (Mlp& mlp : mlps_) {
    for (Linear* linear : mlp.linears()) all.push_back(linear);
  }
  return all;
}

namespace {

// Of the experts' layers for `rows` rows, grouped; 0 where they never are.
size_t grouped_bytes(const spec::Experts& spec, int64_t hidden, const PassShape& shape, int64_t rows) {
  if (shape.host_visible || shape.slices > 1) return 0;
  const int64_t features = spec.expert.features;
  return std::max(GroupedLayer::bytes(rows, features, hidden, shape),
                  GroupedLayer::bytes(rows, hidden, features, shape));
}

// Of one expert, whose outputs are summed over ranks in slices only, and for all of its rows: at most each token of the
// ranks that have experts.
PassShape of_expert(const spec::Experts& spec, PassShape shape) {
  if (shape.slices == 1) shape.tp = 1;
  shape.sequence_parallel = false;
  shape.tokens = spec.max_rows_of_one(shape.tokens);
  return shape;
}

// Of what a pass over this rank's experts takes, in one of the directions.
size_t experts_bytes(const spec::Experts& spec, int64_t hidden, const PassShape& shape, bool forward) {
  const PassShape one = of_expert(spec, shape);
  PassShape grouped = shape;
  grouped.tokens *= spec.ranks;
  const size_t numbers = Arena::footprint(DType::i64, Shape{grouped.tokens});  // dropout rows or adapter slots
  const auto of_one = forward ? Mlp::forward_bytes : Mlp::backward_bytes;
  const size_t by_expert = numbers + of_one(spec.expert, hidden, one, one.tokens);
  return (spec.ranks > 1 && shape.adapter_rank > 0 ? numbers : 0) +
         std::max(by_expert, grouped_bytes(spec, hidden, grouped, shape.tokens * spec.max_rows()));
}

}  // namespace

size_t Experts::forward_bytes(const spec::Experts& spec, int64_t hidden, const PassShape& shape) {
  const size_t offsets = Arena::footprint(DType::i32, Shape{spec.count + 1});
  size_t computed = experts_bytes(spec, hidden, shape, true);
  if (spec.ranks > 1) {
    const size_t exchange = ExpertExchange::exchange_bytes(spec, hidden, shape);
    const size_t sent = shape.matrix_bytes(shape.tokens * spec.per_token, hidden);
    computed = ExpertExchange::rows_bytes(spec, shape.tokens) +
               std::max(sent + exchange, exchange + std::max(computed, exchange));
  }
  return std::max(
      {offsets + computed, Linear::bytes(shape.tokens, spec.count, hidden, shape, false),
       std::max(Linear::sum_bytes(shape.tokens, hidden, shape), all_rows_bytes(shape.tokens, hidden, shape))});
}

size_t Experts::backward_bytes(const spec::Experts& spec, int64_t hidden, const PassShape& shape) {
  const size_t offsets = Arena::footprint(DType::i32, Shape{spec.count + 1});
  const int64_t grouped = shape.tokens * spec.per_token;
  const size_t held = Arena::footprint(DType::f32, Shape{grouped}) + shape.matrix_bytes(grouped, hidden) +
                      2 * all_rows_bytes(shape.tokens, hidden, shape);
  const size_t router =
      shape.matrix_bytes(shape.tokens, spec.count) + Linear::bytes(shape.tokens, spec.count, hidden, shape, false);
  size_t computed = experts_bytes(spec, hidden, shape, false);
  if (spec.ranks > 1) {
    const size_t exchange = ExpertExchange::exchange_bytes(spec, hidden, shape);
    computed = ExpertExchange::rows_bytes(spec, shape.tokens) + 2 * exchange + std::max(computed, exchange);
  }
  return held + std::max(offsets + computed, router);
}

}  // namespace ingot::nn
