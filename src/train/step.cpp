#include "train/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/thread_pool.h"
#include "comm/host_communicator.h"
#include "nn/next_token_loss.h"
#include "ops/adamw.h"
#include "ops/adamw_bytes.h"
#include "ops/columns.h"
#include "ops/fixed_sum.h"
#include "spec/pipeline_timing.h"
#include "train/non_finite_locator.h"
#include "train/step_micro_batches.h"
#include "train/step_schedule.h"

namespace ingot::train {

namespace {

// Maximum contributions of an accumulation unit to a tensor: the output head's gradient arrives once per loss chunk,
// and the embedding lookup adds one more if tied. With slices the unit has as many parts, each of them with these; and
// a norm of heads has one of each slice in each part.
int64_t contributions(const spec::ModelSpec& model, const StepSettings& settings, int64_t slices) {
  const int64_t chunk = spec::loss_chunk(model.vocab);
  const int64_t part = settings.accumulation_unit * settings.sequence_length / slices;
  return slices * std::max((part + chunk - 1) / chunk + 1, slices);
}

int64_t own_blocks(const OptimizerState& optimizer_state) {
  int64_t blocks = 0;
  for (const TrainedParameter& t : optimizer_state.tensors()) blocks += t.num_square_blocks(optimizer_state.share());
  return blocks;
}

}  // namespace

Step::Step(Device& device, const ops::Registry& registry, ThreadPool& threads, const TrainedModel& model,
           OptimizerState& optimizer_state, StepSettings settings, bool decoded, const comm::Grid& grid)
    : device_(device),
      model_(model.spec),
      sharded_(model.sharded),
      optimizer_state_(optimizer_state),
      settings_(settings),
      context_{device, registry, scratch_, &threads},
      grid_(grid),
      gradient_sync_(context_, optimizer_state, grid),
      updated_(optimizer_state.buckets().size()) {
  const ShardSpec& share = optimizer_state.share();
  const int64_t lowest = optimizer_state.lowest_trainable_layer();
  if (model.parts.size() != share.shards.size() || (share.stages() > 1 && share.zero_stage() == 2) ||
      (share.ranks > 1 && share.offload_weights && share.zero_stage() < 3) ||
      share.gathers_weights() != (sharded_ != nullptr) || share.cp != grid.cp.size()) {
    throw_error(ErrorKind::internal,
                "a step of {} parts over {} ranks with optimizer state of {} over {}, ZeRO stage {}",
                model.parts.size(), grid.cp.size(), share.shards.size(), share.cp, share.zero_stage());
  }
  if (optimizer_state.ranges()) {
    accumulator_ = std::make_unique<FixedPointAccumulator>(
        optimizer_state, context_, gradient_sync_,
        settings.accumulation_units * contributions(model.spec, settings, share.sum_slices));
  } else {
    accumulator_ = std::make_unique<Fp32Accumulator>(optimizer_state, context_, gradient_sync_);
  }
  for (size_t i = 0; i < model.parts.size(); ++i) {
    const spec::BackwardEnd end = spec::backward_end(model.spec, share.shards[i], lowest);
    model.parts[i]->set_trainable(optimizer_state.trainable_index(), end.lowest_layer, end.input_gradient);
  }
  const StepBytes sizes = bytes(model.spec, settings, lowest, optimizer_state.adapter_rank(), decoded,
                                threads.threads(), optimizer_state.update_bytes(), device.host_visible(), share);
  const AtOnce most = at_once(model.spec, settings, share, lowest);
  scratch_ = Arena(device, sizes.scratch, "scratch");
  if (grid.on_device.tp) {
    tp_sum_.emplace(grid.on_device.tp, scratch_);
    gradient_sync_.set_tp_sum(&*tp_sum_);
  }
  for (int i = 0; i < most.saved; ++i)
    saved_.emplace_back(device, (sizes.saved - sizes.shared) / static_cast<size_t>(most.saved), "saved activations");
  shared_ = Arena(device, sizes.shared, "saved activations");
  batch_ = Arena(device, sizes.batch, "batch");
  pipeline_.emplace(
      context_, grid, std::vector<const models::Model*>(model.parts.begin(), model.parts.end()), saved_, shared_,
      PipelineMessages{most.messages, most.messages > 0 ? sizes.messages / static_cast<size_t>(most.messages) : 0});
  pipeline_->set_traffic(&traffic_);
  gradient_sync_.set_traffic(&traffic_);
  squares_ = batch_.allocate(DType::f64, Shape{static_cast<int64_t>(optimizer_state.num_trainable())});
  loss_squares_ = batch_.allocate(DType::f64, Shape{1});
  decision_ = batch_.allocate(DType::f64, Shape{3});
  if (share.zero_stage() > 0 || share.sum_slices > 1)
    blocks_ = batch_.allocate(DType::f64, Shape{own_blocks(optimizer_state)});
  const int64_t tokens = settings.micro * settings.accumulation_unit * settings.sequence_length;
  uploader_.emplace(device, batch_, tokens, most.micro_batches + 1,
                    BatchUploader::Share{grid.cp.rank(), grid.cp.size(), share.sum_slices, share.cp_comm_type});
  if (share.cp > 1) {
    const auto ranks = grid.on_device.cp ? grid.on_device.cp : comm::through_host(device, grid.cp);
    switch (share.cp_comm_type) {
      case spec::CpCommType::a2a:
        head_exchange_.emplace(
            ranks, nn::HeadExchange::largest_bytes(model.spec, share.tp(), tokens / share.cp, settings.activation));
        head_exchange_->set_traffic(&traffic_);
        break;
      case spec::CpCommType::allgather:
        key_values_.emplace(ranks,
                            nn::KeyValueGather::largest_bytes(model.spec, share.tp(), tokens, settings.activation));
        key_values_->set_traffic(&traffic_);
        break;
      case spec::CpCommType::p2p:
        ring_.emplace(ranks, nn::KeyValueRing::largest_bytes(model.spec, share.tp(), tokens / share.cp));
        ring_->set_traffic(&traffic_);
        break;
    }
  }
  if (share.sequence_parallel()) {
    row_exchange_.emplace(grid.on_device.tp ? grid.on_device.tp : comm::through_host(device, grid.tp),
                          static_cast<size_t>(tokens / share.cp * model_.hidden) * size_of(settings.activation));
    row_exchange_->set_traffic(&traffic_);
  }
  if (share.ep() > 1) {
    expert_exchange_.emplace(
        grid.ep, grid.on_device.ep ? grid.on_device.ep : comm::through_host(device, grid.ep),
        nn::ExpertExchange::largest_bytes(model_, share.shards, tokens / share.cp, settings.activation));
    expert_exchange_->set_traffic(&traffic_);
  }
  for (UpdateDecision& update : decisions_) {
    update.decision = PinnedBuffer(device, decision_.bytes());
    update.arrived = device.make_event();
    if (!optimizer_state.ranges()) continue;
    update.ranges = PinnedBuffer(device, optimizer_state.ranges().bytes());
    update.largest = PinnedBuffer(device, optimizer_state.largest().bytes());
  }
  if (sharded_ != nullptr) sharded_->set_traffic(&traffic_);  // last: nothing throws after it
}

Step::~Step() {
  set_log(nullptr);
  if (sharded_ != nullptr) sharded_->set_traffic(nullptr);
}

void Step::set_log(ActionLog* log) {
  log_ = log;
  gradient_sync_.set_log(log);
  if (sharded_ != nullptr) sharded_->set_log(log);
  if (optimizer_state_.host_update() != nullptr) optimizer_state_.host_update()->set_log(log);
}

StepBytes Step::peak() const {
  StepBytes peak{.saved = shared_.peak(), .shared = shared_.peak(), .scratch = scratch_.peak(), .batch = batch_.peak()};
  for (const Arena& slot : saved_) peak.saved += slot.peak();
  return peak;
}

bool Step::has_losses() const {
  const ShardSpec& share = optimizer_state_.share();
  return share.shards.back().last() && share.tp_rank() == 0;
}

std::vector<double> Step::in_order(const std::vector<LossSum>& own) const {
  std::vector<LossSum> all;
  for (const std::vector<LossSum>& part : grid_.cp.gather(std::span<const LossSum>(own)))
    all.insert(all.end(), part.begin(), part.end());
  std::ranges::sort(all, {}, &LossSum::place);
  std::vector<double> sums;
  if (grid_.cp.rank() > 0) return sums;
  for (const LossSum& each : all) sums.push_back(each.sum);
  return sums;
}

double Step::sum_in_order(std::span<const double> losses) const {
  const std::vector<std::vector<double>> all = grid_.world.gather(losses);
  double sum = 0;
  for (const int rank : grid_.by_sequences) {
    for (const double loss : all[static_cast<size_t>(rank)]) sum += loss;
  }
  return sum;
}

std::vector<int> Step::weight_units(const spec::PipelineStep& step) const {
  const models::Model& model = pipeline_->model(step.virtual_stage);
  switch (step.action) {
    case spec::PipelineAction::forward: return model.forward_weight_units();
    case spec::PipelineAction::backward:
    case spec::PipelineAction::backward_input: return model.backward_weight_units();
    default: return {};
  }
}

nn::Pass Step::pass_over(const MicroBatch& batch) {
  std::vector<nn::AdapterSegment> adapters;
  if (optimizer_state_.adapter()) adapters.push_back({0, batch.tokens.tokens(), optimizer_state_.adapter()});
  nn::Pass pass{context_, batch.tokens, settings_.activation, std::move(adapters)};
  pass.fp8 = settings_.fp8;
  if (!alone_) {
    pass.tp = {.group = grid_.tp, .sum = tp_sum_ ? &*tp_sum_ : nullptr, .traffic = &traffic_};
  }
  pass.tp.rows = row_exchange_ ? &*row_exchange_ : nullptr;
  pass.cp = head_exchange_ ? &*head_exchange_ : nullptr;
  pass.key_values = key_values_ ? &*key_values_ : nullptr;
  pass.ring = ring_ ? &*ring_ : nullptr;
  pass.ep = expert_exchange_ ? &*expert_exchange_ : nullptr;
  const ShardSpec& share = optimizer_state_.share();
  if (share.sum_slices > 1) {
    pass.tp.slices = share.sum_slices;
    pass.tp.own_slices = share.sum_slices / share.tp();
    pass.tp.first_slice = share.tp_rank() * pass.tp.own_slices;
  }
  pass.weights = sharded_;
  return pass;
}

void Step::sum_squares() {
  const ShardSpec& share = optimizer_state_.share();
  if (share.stages() > 1 || share.tp() > 1 || share.ep() > 1) {
    const std::vector<double> none(optimizer_state_.num_trainable());  // tensors that other ranks count
    device_.copy_from_host(squares_.data, none.data(), squares_.bytes());
  }
  int64_t block = 0;
  for (size_t i = 0; i < optimizer_state_.tensors().size(); ++i) {
    const TrainedParameter& t = optimizer_state_.tensors()[i];
    if (t.shard.count() == 0 || ((!blocks_ || share.sum_slices > 1) && !t.is_counted(share))) continue;
    if (!blocks_ && !share.is_first_with(t.divided)) continue;
    const Tensor gradient = accumulator_->gradient(i);
    if (share.sum_slices > 1) {
      block = sum_square_blocks(t, gradient, block);
      continue;
    }
    if (!blocks_) {
      const auto index = static_cast<int64_t>(t.number);
      ops::sum_squares(context_, squares_.slice(index, index + 1), gradient.slice(0, t.counted_elements(share)));
      continue;
    }
    for (int64_t begin = 0; begin < t.shard.count(); begin += ops::sum_squares_block, ++block) {
      const int64_t end = std::min(t.shard.count(), begin + ops::sum_squares_block);
      const Range own = common({begin, end}, {0, t.counted_elements(share) - t.shard.begin});
      const Tensor squares = blocks_.slice(block, block + 1);
      if (own.count() == 0) {
        device_.fill_zero(squares.data, squares.bytes());
      } else {
        ops::sum_squares(context_, squares, gradient.slice(own.begin, own.end));
      }
    }
  }
  if (blocks_) {
    gradient_sync_.gather_squares(squares_, blocks_);
  } else {
    gradient_sync_.gather_squares(squares_);
  }
}

int64_t Step::sum_square_blocks(const TrainedParameter& t, const Tensor& gradient, int64_t next) {
  const int64_t columns = t.shape.rank() > 1 ? t.shape[1] : 1, first_row = t.shard.begin / columns;
  const Tensor rows = gradient.reshape(Shape{t.shard.count() / columns, columns});
  for (const SquareBlock& block : t.square_blocks) {
    if (!t.has(block)) continue;
    const Arena::Scope scope(scratch_);
    const Tensor of_rows = rows.slice(block.rows.begin - first_row, block.rows.end - first_row);
    Tensor part = of_rows;
    if (block.columns.count() < columns) {
      part = scratch_.allocate(DType::f32, Shape{block.rows.count(), block.columns.count()});
      ops::gather_columns(context_, part, of_rows, {.width = block.columns.count(), .offset = block.columns.begin});
    }
    ops::sum_squares(context_, blocks_.slice(next, next + 1), part.reshape(Shape{part.elements()}));
    ++next;
  }
  return next;
}

void Step::decide(double loss_tokens) {
  gradient_sync_.sum(loss_squares_);
  sum_squares();
  ops::decide_update(context_, decision_, squares_, loss_squares_, {loss_tokens, settings_.optimizer.clip_grad_norm});
}

void Step::update_one(size_t index, const Bucket& bucket, const UpdateAttributes& attributes) {
  const TrainedParameter& t = optimizer_state_.tensors()[index];
  if (t.shard.count() == 0) return;
  if (optimizer_state_.is_offloaded(t)) {
    optimizer_state_.host_update()->add(t, accumulator_->kept_gradient(index), attributes, bucket.layer);
    return;
  }
  if (log_ != nullptr) log_->begin(Action::update, static_cast<int64_t>(t.number));
  update_parameter(context_, t, accumulator_->gradient(index), attributes);
  if (log_ != nullptr) log_->end(Action::update, static_cast<int64_t>(t.number));
}

void Step::update(double lr) {
  optimizer_state_.set_updates(optimizer_state_.updates() + 1);
  const UpdateAttributes attributes{settings_.optimizer, lr, optimizer_state_.updates(), decision_};
  const std::vector<Bucket>& buckets = optimizer_state_.buckets();
  HostUpdate* host = optimizer_state_.host_update();
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (size_t i = buckets[b].first; i < buckets[b].last; ++i) update_one(i, buckets[b], attributes);
    if (host == nullptr) gradient_sync_.begin_gather(b, Stream::compute);
  }
  if (host != nullptr) {
    host->begin();
    updated_ = 0;
  } else {
    gradient_sync_.finish_gathers(buckets.size());
  }
  if (!optimizer_state_.has_whole_weights()) sharded_->changed();
  if (optimizer_state_.ranges()) ops::next_ranges(context_, optimizer_state_.ranges(), optimizer_state_.largest());
}

size_t Step::buckets_up_to(int64_t layer) const {
  const std::vector<Bucket>& buckets = optimizer_state_.buckets();
  if (layer >= model_.num_layers()) return buckets.size();
  return static_cast<size_t>(std::ranges::upper_bound(buckets, layer, {}, &Bucket::layer) - buckets.begin());
}

// What ranks gather is updated one layer ahead, and gathered while the layer before computes.
void Step::finish_host_updates(int64_t layer) {
  HostUpdate* host = optimizer_state_.host_update();
  if (host == nullptr) return;
  const std::vector<Bucket>& buckets = optimizer_state_.buckets();
  const size_t needed = buckets_up_to(layer);
  const bool ahead = optimizer_state_.share().zero_stage() > 0 && needed < buckets.size();
  for (const size_t end = ahead ? buckets_up_to(buckets[needed].layer) : needed; updated_ < end; ++updated_) {
    host->advance(context_, buckets[updated_].layer);
    gradient_sync_.begin_gather(updated_, Stream::copy);
  }
  gradient_sync_.finish_gathers(needed);
}

void Step::abandon_host_updates() {
  updated_ = optimizer_state_.buckets().size();
  if (optimizer_state_.host_update() != nullptr) optimizer_state_.host_update()->abandon();
}

void Step::count(StepResult& result, std::span<const data::PackedSequence> sequences) const {
  int64_t squares = 0;
  for (const data::PackedSequence& sequence : sequences) {
    result.positions += std::ssize(sequence.ids);
    result.tokens += data::num_tokens(sequence);
    result.loss_tokens += sequence.loss_tokens;
    for (size_t s = 1; s < sequence.offsets.size(); ++s) {
      const bool is_padding = s <= sequence.sample_ids.size() && sequence.sample_ids[s - 1] < 0;
      const int64_t length = sequence.offsets[s] - sequence.offsets[s - 1];
      if (!is_padding) squares += length * length;
    }
  }
  std::array<int64_t, 5> counts{result.tokens, result.loss_tokens, squares, std::ssize(sequences), result.positions};
  if (grid_.cp.rank() > 0) counts = {};  // the same sequences as the first one's
  grid_.dp.all_reduce(std::span<int64_t>(counts), comm::ReduceOp::sum);
  result.tokens = counts[0];
  result.loss_tokens = counts[1];
  result.squared_lengths = static_cast<double>(counts[2]);
  result.positions = counts[4];
  if (counts[3] == 0 || static_cast<int64_t>(sequences.size()) % settings_.accumulation_unit != 0) {
    throw_error(ErrorKind::internal, "{} sequences are not a multiple of the unit of {}", sequences.size(),
                settings_.accumulation_unit);
  }
  if (optimizer_state_.ranges() && counts[3] > settings_.accumulation_units * settings_.accumulation_unit) {
    throw_error(ErrorKind::internal, "{} sequences exceed the fixed-point sums' capacity of {} units", counts[3],
                settings_.accumulation_units);
  }
}

// The micro-batches that this rank's schedule has.
int Step::scheduled_micro_batches(size_t sequences) const {
  const int count = micro_batches_of(static_cast<int64_t>(sequences), settings_, optimizer_state_.share());
  return has_equal_micro_batches(optimizer_state_.share()) ? static_cast<int>(grid_.dp.all_max(int64_t{count})) : count;
}

const spec::PipelineSchedule& Step::schedule(int micro_batches, bool trains) {
  const auto known = schedules_.find({micro_batches, trains});
  if (known != schedules_.end()) return known->second;
  spec::PipelineSchedule made = step_schedule(model_, settings_.schedule, optimizer_state_.share(),
                                              optimizer_state_.lowest_trainable_layer(), micro_batches, trains);
  spec::check(made);
  return schedules_.emplace(std::pair(micro_batches, trains), std::move(made)).first->second;
}

std::vector<data::PackedSequence> Step::padded(std::span<const data::PackedSequence> sequences, size_t count) const {
  const auto length = static_cast<size_t>(settings_.sequence_length);
  data::PackedSequence padding;
  padding.ids.assign(length, 0);
  padding.targets.assign(length, -1);
  padding.offsets = {0, static_cast<int32_t>(length)};
  padding.sample_ids = {-1};
  std::vector<data::PackedSequence> all(sequences.begin(), sequences.end());
  all.resize(count, padding);
  return all;
}

void Step::accumulate(std::vector<LossSum>& losses, int64_t step, std::span<const data::PackedSequence> sequences,
                      std::span<const int64_t> samples, Pipeline::Peers peers) {
  const bool alone = peers == Pipeline::Peers::absent;
  std::vector<data::PackedSequence> all;
  std::vector<int64_t> all_samples(samples.begin(), samples.end());
  const size_t own = sequences.size();
  if (pads_sequences()) {
    // A memory probe computes as many as other ranks may have.
    sequences = all = padded(sequences, alone ? static_cast<size_t>(settings_.micro * settings_.accumulation_unit)
                                              : static_cast<size_t>(grid_.dp.all_max(std::ssize(sequences))));
    all_samples.resize(sequences.size());
    samples = all_samples;
  }
  const int count = alone ? micro_batches_of(std::ssize(sequences), settings_, optimizer_state_.share())
                          : scheduled_micro_batches(sequences.size());
  accumulator_->begin_step();
  // A rank that passes through no layer: others wait for what it has updated.
  if (sequences.empty()) finish_host_updates();
  MicroBatches work(*this, sequences, samples, static_cast<size_t>(settings_.micro * settings_.accumulation_unit),
                    count, own, losses);
  work.train(step);
  pipeline_->run(schedule(count, true), work, peers);
}

void Step::enqueue(InFlightStep& in_flight, int64_t step, double lr, std::span<const data::PackedSequence> sequences,
                   std::span<const int64_t> samples) {
  in_flight.updates = optimizer_state_.updates();
  count(in_flight.result, sequences);
  accumulate(in_flight.losses, step, sequences, samples);
  if (in_flight.result.loss_tokens == 0) return;  // nothing to update with
  decide(static_cast<double>(in_flight.result.loss_tokens));
  in_flight.decision = in_flight_.size() > 1 ? 1 - in_flight_.front().decision : 0;
  in_flight.undecided = true;
  const UpdateDecision& update_decision = decisions_[in_flight.decision];
  device_.copy_to_host_async(Stream::compute, update_decision.decision.data(), decision_.data, decision_.bytes());
  if (optimizer_state_.ranges()) {
    for (const auto& [to, from] : {std::pair(&update_decision.ranges, &optimizer_state_.ranges()),
                                   std::pair(&update_decision.largest, &optimizer_state_.largest())}) {
      device_.copy_to_host_async(Stream::compute, to->data(), from->data, from->bytes());
    }
  }
  update_decision.arrived->record(Stream::compute);
  update(lr);
}

void Step::begin(int64_t step, double lr, std::span<const data::PackedSequence> sequences,
                 std::span<const int64_t> samples) {
  if (in_flight_.size() == max_in_flight)
    throw_error(ErrorKind::internal, "{} steps are already in flight", max_in_flight);
  in_flight_.emplace_back();
  run_or_drop([&] { enqueue(in_flight_.back(), step, lr, sequences, samples); });
}

void Step::run_or_drop(FunctionRef<void()> work) {
  const ThreadPool::Binding bound(*context_.threads);
  try {
    work();
  } catch (...) {
    uploader_->discard_pending();
    accumulator_->abandon();
    if (sharded_ != nullptr) sharded_->abandon();
    abandon_host_updates();
    in_flight_.clear();
    throw;
  }
}

StepResult Step::finish() {
  if (in_flight_.empty()) throw_error(ErrorKind::internal, "no step is in flight");
  const ThreadPool::Binding bound(*context_.threads);
  InFlightStep& in_flight = in_flight_.front();
  uploader_->collect(in_flight.losses);
  StepResult result = in_flight.result;
  const std::vector<double> own = in_order(in_flight.losses);
  result.loss = sum_in_order(own);
  if (!in_flight.undecided) {
    result.skipped = true;
    in_flight_.pop_front();
    return result;
  }
  const UpdateDecision& update_decision = decisions_[in_flight.decision];
  update_decision.arrived->wait();
  const auto* decision = reinterpret_cast<const double*>(update_decision.decision.data());
  result.loss /= static_cast<double>(result.loss_tokens);
  result.grad_norm = decision[0];
  result.skipped = decision[2] != 0;
  result.retry = result.skipped && exceeded_range(update_decision);
  if (result.skipped) {
    rewind(update_decision);
  } else {
    in_flight_.pop_front();
    if (in_flight_.empty()) finish_host_updates();
  }
  return result;
}

// Whether the step was skipped only because contributions exceeded their ranges.
bool Step::exceeded_range(const UpdateDecision& update) const {
  if (!optimizer_state_.ranges()) return false;
  const auto* ranges = reinterpret_cast<const int32_t*>(update.ranges.data());
  const auto* largest = reinterpret_cast<const float*>(update.largest.data());
  bool some = false;
  for (size_t i = 0; i < optimizer_state_.num_trainable(); ++i) {
    if (!std::isfinite(largest[i])) return false;
    some = some || !ops::in_range(ranges[i], largest[i]);
  }
  return some;
}

// Restores the state before the oldest in-flight step, except for the ranges, which become those that follow from that
// step: the steps enqueued after it have changed the ranges on the device.
void Step::rewind(const UpdateDecision& update) {
  if (optimizer_state_.ranges()) {
    std::vector<int32_t> ranges(optimizer_state_.num_trainable());
    for (size_t i = 0; i < ranges.size(); ++i) {
      ranges[i] = ops::next_range(reinterpret_cast<const int32_t*>(update.ranges.data())[i],
                                  reinterpret_cast<const float*>(update.largest.data())[i]);
    }
    device_.copy_from_host(optimizer_state_.ranges().data, ranges.data(), optimizer_state_.ranges().bytes());
  }
  optimizer_state_.set_updates(in_flight_.front().updates);
  uploader_->discard_pending();
  abandon_host_updates();
  in_flight_.clear();
  const std::array<double, 3> clear{};
  device_.copy_from_host(decision_.data, clear.data(), decision_.bytes());
}

StepResult Step::run(int64_t step, double lr, std::span<const data::PackedSequence> sequences,
                     std::span<const int64_t> samples) {
  refuse_while_in_flight("a step is run");
  while (true) {
    begin(step, lr, sequences, samples);
    const StepResult result = finish();
    if (!result.retry) return result;
  }
}

void Step::refuse_while_in_flight(const char* what) const {
  if (!in_flight_.empty()) throw_error(ErrorKind::internal, "{} while another step is in flight", what);
}

std::string Step::locate_non_finite(int64_t step, std::span<const data::PackedSequence> sequences,
                                    std::span<const int64_t> samples, const WeightSet& weights) {
  refuse_while_in_flight("a step is run again");
  NonFiniteLocator locator(device_, model_, weights, optimizer_state_, sharded_);
  struct Watching {
    Step& step;
    ~Watching() {
      step.context_.watch = nullptr;
      step.locator_ = nullptr;
    }
  } const watching{*this};
  context_.watch = &locator;
  locator_ = &locator;
  std::vector<LossSum> losses;
  run_or_drop([&] {
    accumulate(losses, step, sequences, samples);
    uploader_->collect(losses);
  });
  const std::vector<std::string> found = grid_.world.gather(locator.found());
  const std::vector<NonFiniteLocator::Place> places = grid_.world.gather_one(locator.place_found());
  std::optional<size_t> first;
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (!found[rank].empty() && (!first || places[rank] < places[*first])) first = rank;
  }
  return first ? found[*first] : std::string();
}

void Step::probe_memory(std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples) {
  refuse_while_in_flight("the memory probe runs");
  std::vector<LossSum> losses;
  const auto set_alone = [this](bool alone) {
    alone_ = alone;
    gradient_sync_.set_local_only(alone);
    if (sharded_ != nullptr) sharded_->set_local_only(alone);
    if (head_exchange_) head_exchange_->set_local_only(alone);
    if (key_values_) key_values_->set_local_only(alone);
    if (ring_) ring_->set_local_only(alone);
    if (row_exchange_) row_exchange_->set_local_only(alone);
    if (expert_exchange_) expert_exchange_->set_local_only(alone);
  };
  set_alone(true);
  struct Together {
    const decltype(set_alone)& set;
    ~Together() { set(false); }
  } const together{set_alone};
  run_or_drop([&] {
    accumulate(losses, 1, sequences, samples, Pipeline::Peers::absent);
    uploader_->collect(losses);
  });
}

std::vector<double> Step::evaluate(std::span<const data::PackedSequence> sequences) {
  refuse_while_in_flight("a model is evaluated");
  std::vector<LossSum> losses;
  const int stages = grid_.pp.size();
  const auto at_once = static_cast<size_t>(evaluated_at_once(stages));
  // Ranks that share the weights gather them together, also those with fewer sequences.
  const size_t own = sequences.size();
  size_t all = own;
  std::vector<data::PackedSequence> with_padding;
  if (pads_sequences()) {
    sequences = with_padding = padded(sequences, static_cast<size_t>(grid_.dp.all_max(std::ssize(sequences))));
    all = sequences.size();
  } else if (sharded_ != nullptr) {
    all = static_cast<size_t>(grid_.dp.all_max(static_cast<int64_t>(all)));
  }
  run_or_drop([&] {
    for (size_t begin = 0; begin < all; begin += at_once) {
      const size_t from = std::min(begin, sequences.size());
      const size_t count = std::min(at_once, sequences.size() - from);
      MicroBatches work(*this, sequences.subspan(from, count), {}, 1, static_cast<int>(at_once),
                        own - std::min(begin, own), losses);
      pipeline_->run(schedule(static_cast<int>(at_once), false), work);
    }
    uploader_->collect(losses);
  });
  return in_order(losses);
}

void Step::refresh_weights() {
  optimizer_state_.refresh_weights(context_);
  const size_t buckets = optimizer_state_.buckets().size();
  for (size_t b = 0; b < buckets; ++b) gradient_sync_.begin_gather(b, Stream::compute);
  gradient_sync_.finish_gathers(buckets);
  if (!optimizer_state_.has_whole_weights()) sharded_->changed();
}

Tensor Step::master(size_t index, Buffer& memory) {
  const TrainedParameter& t = optimizer_state_.tensors()[index];
  if (optimizer_state_.share().zero_stage() == 0 || t.parts.size() == 1) return t.master.reshape(t.shape);
  memory = Buffer(device_, static_cast<size_t>(t.shape.elements()) * size_of(t.master.dtype));
  gradient_sync_.gather_master(index, memory.view(t.master.dtype, Shape{t.shape.elements()}));
  return memory.view(t.master.dtype, t.shape);
}

}  // namespace ingot::train
