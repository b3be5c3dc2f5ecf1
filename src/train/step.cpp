#include "train/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/thread_pool.h"
#include "nn/next_token_loss.h"
#include "ops/adamw.h"
#include "ops/adamw_bytes.h"
#include "ops/fixed_sum.h"
#include "train/non_finite_locator.h"

namespace ingot::train {

namespace {

models::PassShape pass_shape(const StepSettings& settings, int64_t adapter_rank, bool decoded, int threads,
                             bool host_visible) {
  models::PassShape shape;
  shape.tokens = settings.micro * settings.accumulation_unit * settings.sequence_length;
  shape.longest = settings.sequence_length;
  shape.adapter_rank = adapter_rank;
  shape.activation = settings.activation;
  shape.fp8 = settings.fp8;
  shape.decoded = decoded;
  shape.threads = threads;
  shape.host_visible = host_visible;
  return shape;
}

int64_t rank_of(const OptimizerState& optimizer_state) {
  int64_t rank = 0;
  if (!optimizer_state.adapter()) return rank;
  for (const nn::LoraWeights& layer : optimizer_state.adapter()->layers) {
    if (layer.a) rank = std::max(rank, layer.a.rows());
  }
  return rank;
}

// Elements of the largest tensor whose squares are summed.
int64_t max_elements(const spec::ModelSpec& model, int64_t tokens) {
  int64_t elements = tokens;
  for (const spec::ParamSpec& p : spec::parameters(model)) elements = std::max(elements, p.elements());
  return elements;
}

// Maximum contributions of an accumulation unit to a tensor: the output head's gradient arrives once per loss chunk,
// and the embedding lookup adds one more if tied.
int64_t contributions(const spec::ModelSpec& model, const StepSettings& settings) {
  const int64_t chunk = spec::loss_chunk(model.vocab);
  return (settings.accumulation_unit * settings.sequence_length + chunk - 1) / chunk + 1;
}

// At most two tensors per parameter (a low-rank pair) are trainable.
int64_t max_trainable(const spec::ModelSpec& model) { return 2 * static_cast<int64_t>(spec::parameters(model).size()); }

int64_t own_blocks(const OptimizerState& optimizer_state) {
  int64_t blocks = 0;
  for (const TrainedParameter& t : optimizer_state.tensors()) {
    blocks += (t.shard.count() + ops::sum_squares_block - 1) / ops::sum_squares_block;
  }
  return blocks;
}

// Maximum ops::sum_squares blocks in the trainable tensors: the parameters, or a low-rank pair of each.
int64_t max_blocks(const spec::ModelSpec& model, int64_t adapter_rank) {
  int64_t blocks = 0;
  for (const spec::ParamSpec& p : spec::parameters(model)) {
    const int64_t sides = std::accumulate(p.shape.begin(), p.shape.end(), int64_t{0});
    blocks += std::max(p.elements(), adapter_rank * sides) / ops::sum_squares_block + 2;
  }
  return blocks;
}

}  // namespace

StepBytes Step::bytes(const spec::ModelSpec& model, const StepSettings& settings, int64_t lowest_trainable_layer,
                      int64_t adapter_rank, bool decoded, int threads, size_t update_bytes, bool host_visible) {
  const models::PassShape shape = pass_shape(settings, adapter_rank, decoded, threads, host_visible);
  StepBytes bytes;
  bytes.saved = spec::saved_bytes(model, settings.recompute, static_cast<int64_t>(size_of(settings.activation)),
                                  shape.tokens, model.num_layers() - lowest_trainable_layer);
  const models::PassBytes pass = models::pass_bytes(model, shape);
  const int64_t elements = max_elements(model, shape.tokens);
  const size_t accumulator =
      settings.units > 0 ? FixedPointAccumulator::bytes(elements) : 0;  // used while a layer's scratch is allocated
  const auto objective = [&](bool training) { return nn::NextTokenLoss::bytes(model, shape, training); };
  const size_t training = std::max({pass.forward, pass.loss_gradient + objective(true), pass.backward});
  bytes.scratch = std::max({training + accumulator, objective(false), ops::sum_squares_bytes(elements), update_bytes});
  // Micro-batches; sums of squared gradients and losses; the update decision; sums of squares by block.
  bytes.batch = BatchUploader::bytes(shape.tokens) + Arena::footprint(DType::f64, Shape{max_trainable(model)}) +
                Arena::footprint(DType::f64, Shape{1}) + Arena::footprint(DType::f64, Shape{3}) +
                Arena::footprint(DType::f64, Shape{max_blocks(model, adapter_rank)});
  return bytes;
}

Step::Step(Device& device, const ops::Registry& registry, ThreadPool& threads, models::Model& model,
           OptimizerState& optimizer_state, StepSettings settings, bool decoded, const comm::Group& ranks)
    : device_(device),
      model_(model),
      optimizer_state_(optimizer_state),
      settings_(settings),
      context_{device, registry, scratch_, &threads},
      ranks_(ranks),
      gradient_sync_(device, optimizer_state, ranks) {
  if (optimizer_state.ranges()) {
    accumulator_ = std::make_unique<FixedPointAccumulator>(optimizer_state, context_, gradient_sync_,
                                                           settings.units * contributions(model.spec(), settings));
  } else {
    accumulator_ = std::make_unique<Fp32Accumulator>(optimizer_state, context_, gradient_sync_);
  }
  model.set_trainable(optimizer_state.trainable_index(), optimizer_state.lowest_trainable_layer());
  const StepBytes sizes =
      bytes(model.spec(), settings, optimizer_state.lowest_trainable_layer(), rank_of(optimizer_state), decoded,
            threads.threads(), optimizer_state.update_bytes(), device.host_visible());
  scratch_ = Arena(device, sizes.scratch, "scratch");
  saved_ = Arena(device, sizes.saved, "saved activations");
  batch_ = Arena(device, sizes.batch, "batch");
  squares_ = batch_.allocate(DType::f64, Shape{static_cast<int64_t>(optimizer_state.tensors().size())});
  loss_squares_ = batch_.allocate(DType::f64, Shape{1});
  decision_ = batch_.allocate(DType::f64, Shape{3});
  if (optimizer_state.share().stage() > 0) blocks_ = batch_.allocate(DType::f64, Shape{own_blocks(optimizer_state)});
  uploader_.emplace(device, batch_, settings.micro * settings.accumulation_unit * settings.sequence_length);
  for (UpdateDecision& update : decisions_) {
    update.decision = PinnedBuffer(device, decision_.bytes());
    update.arrived = device.make_event();
    if (!optimizer_state.ranges()) continue;
    update.ranges = PinnedBuffer(device, optimizer_state.ranges().bytes());
    update.largest = PinnedBuffer(device, optimizer_state.largest().bytes());
  }
}

nn::Pass Step::pass_over(const MicroBatch& batch) {
  std::vector<nn::AdapterSegment> adapters;
  if (optimizer_state_.adapter()) adapters.push_back({0, batch.tokens.tokens(), optimizer_state_.adapter()});
  nn::Pass pass{context_, batch.tokens, settings_.activation, std::move(adapters)};
  pass.fp8 = settings_.fp8;
  return pass;
}

void Step::sum_squares() {
  int64_t block = 0;
  for (size_t i = 0; i < optimizer_state_.tensors().size(); ++i) {
    const TrainedParameter& t = optimizer_state_.tensors()[i];
    if (t.shard.count() == 0) continue;
    const Tensor gradient = accumulator_->gradient(i);
    if (!blocks_) {
      const auto index = static_cast<int64_t>(i);
      ops::sum_squares(context_, squares_.slice(index, index + 1), gradient);
      continue;
    }
    for (int64_t begin = 0; begin < t.shard.count(); begin += ops::sum_squares_block, ++block) {
      const int64_t end = std::min(t.shard.count(), begin + ops::sum_squares_block);
      ops::sum_squares(context_, blocks_.slice(block, block + 1), gradient.slice(begin, end));
    }
  }
  if (blocks_) gradient_sync_.gather_squares(squares_, blocks_);
}

void Step::decide(double loss_tokens) {
  gradient_sync_.sum(loss_squares_);
  sum_squares();
  ops::decide_update(context_, decision_, squares_, loss_squares_, {loss_tokens, settings_.optimizer.clip_grad_norm});
}

void Step::update(double lr) {
  optimizer_state_.set_updates(optimizer_state_.updates() + 1);
  const UpdateAttributes attributes{settings_.optimizer, lr, optimizer_state_.updates(), decision_};
  for (size_t i = 0; i < optimizer_state_.tensors().size(); ++i) {
    const TrainedParameter& t = optimizer_state_.tensors()[i];
    if (t.shard.count() > 0) update_parameter(context_, t, accumulator_->gradient(i), attributes);
  }
  gradient_sync_.gather_weights();
  if (optimizer_state_.ranges()) ops::next_ranges(context_, optimizer_state_.ranges(), optimizer_state_.largest());
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
  ranks_.all_reduce(std::span<int64_t>(counts), comm::ReduceOp::sum);
  result.tokens = counts[0];
  result.loss_tokens = counts[1];
  result.squared_lengths = static_cast<double>(counts[2]);
  result.positions = counts[4];
  if (counts[3] == 0 || static_cast<int64_t>(sequences.size()) % settings_.accumulation_unit != 0) {
    throw_error(ErrorKind::internal, "{} sequences are not a multiple of the unit of {}", sequences.size(),
                settings_.accumulation_unit);
  }
  if (optimizer_state_.ranges() && counts[3] > settings_.units * settings_.accumulation_unit) {
    throw_error(ErrorKind::internal, "{} sequences exceed the fixed-point sums' capacity of {} units", counts[3],
                settings_.units);
  }
}

void Step::compute(const MicroBatch& batch, int64_t step, bool first) {
  nn::Training training{*accumulator_,  batch.accumulation_offsets,  settings_.recompute,    batch.rows,
                        settings_.seed, static_cast<uint64_t>(step), settings_.fp8_gradients};
  nn::Pass pass = pass_over(batch);
  pass.training = &training;
  models::Slot slot(saved_);
  model_.forward(pass, slot);
  model_.loss(pass, slot, nn::NextTokenLoss(batch.losses, batch.targets));
  model_.backward(pass, slot);
  slot.clear();
  ops::sum_squares(context_, loss_squares_, batch.losses, !first);
}

void Step::accumulate(std::vector<double>& losses, int64_t step, std::span<const data::PackedSequence> sequences,
                      std::span<const int64_t> samples) {
  const size_t max_sequences = static_cast<size_t>(settings_.micro * settings_.accumulation_unit);
  const size_t micro_batches = (sequences.size() + max_sequences - 1) / max_sequences;
  size_t rounds = std::max<size_t>(1, micro_batches);  // of synchronisation; other ranks may have more
  if (gradient_sync_.every_micro_batch()) rounds = static_cast<size_t>(ranks_.all_max(static_cast<int64_t>(rounds)));
  accumulator_->begin_step();
  const auto put = [&](size_t round) {
    if (round >= micro_batches) return;
    const size_t begin = round * max_sequences;
    const size_t count = std::min(max_sequences, sequences.size() - begin);
    uploader_->put(sequences.subspan(begin, count), samples.subspan(begin, count), settings_.sequence_length,
                   settings_.accumulation_unit, losses);
  };
  put(0);
  for (size_t round = 0; round < rounds; ++round) {
    const bool last = round + 1 == rounds;
    if (round >= micro_batches) {
      accumulator_->empty_micro_batch(last);
      continue;
    }
    accumulator_->begin_micro_batch(last);
    compute(uploader_->take(), step, round == 0);
    uploader_->computed();
    put(round + 1);  // while the device computes
    accumulator_->end_micro_batch();
  }
  if (micro_batches == 0) {
    const double none = 0;
    device_.copy_from_host(loss_squares_.data, &none, sizeof none);
  }
  accumulator_->end_step();
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
  for (const std::vector<double>& losses : ranks_.gather(std::span<const double>(in_flight.losses))) {
    for (const double loss : losses) result.loss += loss;  // in the order of the step's sequences
  }
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
  }
  return result;
}

// Whether the step was skipped only because contributions exceeded their ranges.
bool Step::exceeded_range(const UpdateDecision& update) const {
  if (!optimizer_state_.ranges()) return false;
  const auto* ranges = reinterpret_cast<const int32_t*>(update.ranges.data());
  const auto* largest = reinterpret_cast<const float*>(update.largest.data());
  bool some = false;
  for (size_t i = 0; i < optimizer_state_.tensors().size(); ++i) {
    if (!std::isfinite(largest[i])) return false;
    some = some || !ops::in_range(ranges[i], largest[i]);
  }
  return some;
}

// Restores the state before the oldest in-flight step, except for the ranges, which become those that follow from that
// step: the steps enqueued after it have changed the ranges on the device.
void Step::rewind(const UpdateDecision& update) {
  if (optimizer_state_.ranges()) {
    std::vector<int32_t> ranges(optimizer_state_.tensors().size());
    for (size_t i = 0; i < ranges.size(); ++i) {
      ranges[i] = ops::next_range(reinterpret_cast<const int32_t*>(update.ranges.data())[i],
                                  reinterpret_cast<const float*>(update.largest.data())[i]);
    }
    device_.copy_from_host(optimizer_state_.ranges().data, ranges.data(), optimizer_state_.ranges().bytes());
  }
  optimizer_state_.set_updates(in_flight_.front().updates);
  uploader_->discard_pending();
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
  NonFiniteLocator locator(device_, model_.spec(), weights, optimizer_state_);
  struct Watching {
    ops::Context& context;
    ~Watching() { context.watch = nullptr; }
  } const watching{context_};
  context_.watch = &locator;
  std::vector<double> losses;
  run_or_drop([&] {
    accumulate(losses, step, sequences, samples);
    uploader_->collect(losses);
  });
  for (const std::string& found : ranks_.gather(locator.found())) {
    if (!found.empty()) return found;
  }
  return {};
}

void Step::probe_memory(std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples) {
  refuse_while_in_flight("the memory probe runs");
  std::vector<double> losses;
  gradient_sync_.set_local_only(true);
  struct Together {
    GradientSync& gradient_sync;
    ~Together() { gradient_sync.set_local_only(false); }
  } const together{gradient_sync_};
  run_or_drop([&] {
    accumulate(losses, 1, sequences, samples);
    uploader_->collect(losses);
  });
}

Step::Loss Step::evaluate(std::span<const data::PackedSequence> sequences) {
  refuse_while_in_flight("a model is evaluated");
  std::vector<double> losses;
  const size_t max_sequences = static_cast<size_t>(settings_.micro * settings_.accumulation_unit);
  const auto put = [&](size_t begin) {
    if (begin >= sequences.size()) return;
    const size_t count = std::min(max_sequences, sequences.size() - begin);
    uploader_->put(sequences.subspan(begin, count), {}, settings_.sequence_length, settings_.accumulation_unit, losses);
  };
  run_or_drop([&] {
    put(0);
    for (size_t begin = 0; begin < sequences.size(); begin += max_sequences) {
      const MicroBatch& batch = uploader_->take();
      nn::Pass pass = pass_over(batch);
      models::Slot slot(saved_);
      model_.forward(pass, slot);
      model_.loss(pass, slot, nn::NextTokenLoss(batch.losses, batch.targets));
      slot.clear();
      uploader_->computed();
      put(begin + max_sequences);
    }
    uploader_->collect(losses);
  });
  Loss total;
  for (const double loss : losses) total.sum += loss;
  for (const data::PackedSequence& sequence : sequences) total.loss_tokens += sequence.loss_tokens;
  return total;
}

void Step::refresh_weights() {
  optimizer_state_.refresh_weights(context_);
  gradient_sync_.gather_weights();
}

Tensor Step::master(size_t index, Buffer& memory) {
  const TrainedParameter& t = optimizer_state_.tensors()[index];
  if (optimizer_state_.share().stage() == 0) return t.master;
  memory = Buffer(device_, static_cast<size_t>(t.shape.elements()) * size_of(t.master.dtype));
  const Tensor whole = memory.view(t.master.dtype, Shape{t.shape.elements()});
  gradient_sync_.gather_master(index, whole);
  return whole.reshape(t.shape);
}

}  // namespace ingot::train
