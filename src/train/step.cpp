#include "train/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/adamw.h"
#include "ops/adamw_bytes.h"
#include "ops/fixed_sum.h"
#include "train/fault_finder.h"

namespace ingot::train {

namespace {

models::PassShape pass_shape(const StepSettings& settings, int64_t adapter_rank, bool decoded, int threads) {
  models::PassShape shape;
  shape.tokens = settings.micro * settings.unit * settings.sequence_length;
  shape.longest = settings.sequence_length;
  shape.adapter_rank = adapter_rank;
  shape.activation = settings.activation;
  shape.fp8 = settings.fp8;
  shape.decoded = decoded;
  shape.threads = threads;
  return shape;
}

int64_t rank_of(const Trained& trained) {
  int64_t rank = 0;
  if (!trained.adapter()) return rank;
  for (const nn::LoraWeights& layer : trained.adapter()->layers) {
    if (layer.a) rank = std::max(rank, layer.a.rows());
  }
  return rank;
}

// Of what the gradient norm is taken of.
int64_t most_elements(const spec::ModelSpec& model, int64_t tokens) {
  int64_t most = tokens;
  for (const spec::ParamSpec& p : spec::parameters(model)) most = std::max(most, p.elements());
  return most;
}

// Of a unit to a tensor: the head's come in pieces of the loss, and a tied embedding's look-up brings one more.
int64_t contributions(const spec::ModelSpec& model, const StepSettings& settings) {
  const int64_t piece = spec::loss_chunk(model.vocab);
  return (settings.unit * settings.sequence_length + piece - 1) / piece + 1;
}

// At most a low-rank pair for every parameter is trained.
int64_t most_trained(const spec::ModelSpec& model) { return 2 * static_cast<int64_t>(spec::parameters(model).size()); }

int64_t own_blocks(const Trained& trained) {
  int64_t blocks = 0;
  for (const TrainedTensor& t : trained.tensors()) {
    blocks += (t.own.count() + ops::sum_squares_block - 1) / ops::sum_squares_block;
  }
  return blocks;
}

// Of ops::sum_squares in what is trained: every parameter, or a low-rank pair of each.
int64_t most_blocks(const spec::ModelSpec& model, int64_t adapter_rank) {
  int64_t blocks = 0;
  for (const spec::ParamSpec& p : spec::parameters(model)) {
    const int64_t sides = std::accumulate(p.shape.begin(), p.shape.end(), int64_t{0});
    blocks += std::max(p.elements(), adapter_rank * sides) / ops::sum_squares_block + 2;
  }
  return blocks;
}

}  // namespace

StepBytes Step::bytes(const spec::ModelSpec& model, const StepSettings& settings, int64_t lowest_layer,
                      int64_t adapter_rank, bool decoded, int threads) {
  const models::PassShape shape = pass_shape(settings, adapter_rank, decoded, threads);
  StepBytes bytes;
  bytes.saved = spec::saved_bytes(model, settings.recompute, static_cast<int64_t>(size_of(settings.activation)),
                                  shape.tokens, model.layers - lowest_layer);
  const models::PassBytes pass = models::pass_bytes(model, shape);
  const int64_t most = most_elements(model, shape.tokens);
  const size_t sink = settings.units > 0 ? FixedSink::bytes(most) : 0;  // while a layer has scratch of its own
  bytes.scratch = std::max({pass.training + sink, pass.loss, ops::sum_squares_bytes(most)});
  // Micro-batches; squares of gradients and losses, and what is decided of them.
  bytes.batch = Feed::bytes(shape.tokens) + Arena::footprint(DType::f64, Shape{most_trained(model)}) +
                Arena::footprint(DType::f64, Shape{1}) + Arena::footprint(DType::f64, Shape{3}) +
                Arena::footprint(DType::f64, Shape{most_blocks(model, adapter_rank)});
  return bytes;
}

Step::Step(Device& device, const ops::Registry& registry, ThreadPool& threads, models::Model& model, Trained& trained,
           StepSettings settings, bool decoded, const comm::Group& ranks)
    : device_(device),
      model_(model),
      trained_(trained),
      settings_(settings),
      context_{device, registry, scratch_, &threads},
      ranks_(ranks),
      exchange_(device, trained, ranks) {
  if (trained.ranges()) {
    sink_ = std::make_unique<FixedSink>(trained, context_, exchange_,
                                        settings.units * contributions(model.spec(), settings));
  } else {
    sink_ = std::make_unique<Fp32Sink>(trained, context_, exchange_);
  }
  model.set_trained(trained.place_of_parameter(), trained.lowest_layer());
  const StepBytes sizes =
      bytes(model.spec(), settings, trained.lowest_layer(), rank_of(trained), decoded, threads.threads());
  scratch_ = Arena(device, sizes.scratch, "scratch");
  saved_ = Arena(device, sizes.saved, "saved activations");
  batch_ = Arena(device, sizes.batch, "batch");
  squares_ = batch_.take(DType::f64, Shape{static_cast<int64_t>(trained.tensors().size())});
  loss_squares_ = batch_.take(DType::f64, Shape{1});
  decision_ = batch_.take(DType::f64, Shape{3});
  if (trained.share().stage() > 0) blocks_ = batch_.take(DType::f64, Shape{own_blocks(trained)});
  feed_.emplace(device, batch_, settings.micro * settings.unit * settings.sequence_length);
  for (Verdict& verdict : verdicts_) {
    verdict.decision = HostBuffer(device, decision_.bytes());
    verdict.arrived = device.make_event();
    if (!trained.ranges()) continue;
    verdict.ranges = HostBuffer(device, trained.ranges().bytes());
    verdict.largest = HostBuffer(device, trained.largest().bytes());
  }
}

nn::Pass Step::pass_over(const MicroBatch& batch) {
  std::vector<nn::AdapterSegment> adapters;
  if (trained_.adapter()) adapters.push_back({0, batch.tokens.tokens(), trained_.adapter()});
  nn::Pass pass{context_, batch.tokens, settings_.activation, std::move(adapters)};
  pass.fp8 = settings_.fp8;
  return pass;
}

void Step::sum_squares() {
  int64_t block = 0;
  for (size_t i = 0; i < trained_.tensors().size(); ++i) {
    const TrainedTensor& t = trained_.tensors()[i];
    if (t.own.count() == 0) continue;
    const Tensor gradient = sink_->gradient(i);
    if (!blocks_) {
      const auto place = static_cast<int64_t>(i);
      ops::sum_squares(context_, squares_.slice(place, place + 1), gradient);
      continue;
    }
    for (int64_t begin = 0; begin < t.own.count(); begin += ops::sum_squares_block, ++block) {
      const int64_t end = std::min(t.own.count(), begin + ops::sum_squares_block);
      ops::sum_squares(context_, blocks_.slice(block, block + 1), gradient.slice(begin, end));
    }
  }
  if (blocks_) exchange_.join_squares(squares_, blocks_);
}

void Step::decide(double counted) {
  exchange_.sum(loss_squares_);
  sum_squares();
  ops::decide_update(context_, decision_, squares_, loss_squares_, {counted, settings_.optimizer.clip_grad_norm});
}

void Step::update(double lr) {
  trained_.set_updates(trained_.updates() + 1);
  const OptimizerSettings& optimizer = settings_.optimizer;
  for (size_t i = 0; i < trained_.tensors().size(); ++i) {
    const TrainedTensor& t = trained_.tensors()[i];
    if (t.own.count() == 0) continue;
    const Shape flat{t.own.count()};
    ops::AdamwState state{t.master.reshape(flat), t.moment1.reshape(flat), t.moment2.reshape(flat), {}};
    const Tensor weight = t.weight.reshape(Shape{t.weight.elements()}).slice(t.own.begin, t.own.end);
    if (weight.data != t.master.data) state.weight = weight;
    ops::AdamwAttributes attributes;
    attributes.lr = static_cast<float>(lr);
    attributes.beta1 = static_cast<float>(optimizer.beta1);
    attributes.beta2 = static_cast<float>(optimizer.beta2);
    attributes.epsilon = static_cast<float>(optimizer.epsilon);
    attributes.weight_decay = t.decay ? static_cast<float>(optimizer.weight_decay) : 0;
    attributes.step = trained_.updates();
    attributes.decision = decision_;
    ops::adamw(context_, state, sink_->gradient(i), attributes);
  }
  exchange_.gather_weights();
  if (trained_.ranges()) ops::next_ranges(context_, trained_.ranges(), trained_.largest());
}

void Step::count(StepResult& result, std::span<const data::PackedSequence> sequences) const {
  int64_t squares = 0;
  for (const data::PackedSequence& sequence : sequences) {
    result.positions += std::ssize(sequence.ids);
    result.tokens += data::num_tokens(sequence);
    result.counted += sequence.counted;
    for (size_t s = 1; s < sequence.offsets.size(); ++s) {
      const bool is_padding = s <= sequence.sample_ids.size() && sequence.sample_ids[s - 1] < 0;
      const int64_t length = sequence.offsets[s] - sequence.offsets[s - 1];
      if (!is_padding) squares += length * length;
    }
  }
  std::array<int64_t, 5> counts{result.tokens, result.counted, squares, std::ssize(sequences), result.positions};
  ranks_.all_reduce(std::span<int64_t>(counts), comm::Combine::sum);
  result.tokens = counts[0];
  result.counted = counts[1];
  result.squared_lengths = static_cast<double>(counts[2]);
  result.positions = counts[4];
  if (counts[3] == 0 || static_cast<int64_t>(sequences.size()) % settings_.unit != 0) {
    throw_error(ErrorKind::internal, "{} sequences are not whole units of {}", sequences.size(), settings_.unit);
  }
  if (trained_.ranges() && counts[3] > settings_.units * settings_.unit) {
    throw_error(ErrorKind::internal, "{} sequences, and fixed sums have room for {} units", counts[3], settings_.units);
  }
}

void Step::compute(const MicroBatch& batch, int64_t step, bool first) {
  nn::Training training{*sink_,     batch.unit_offsets, settings_.recompute,         saved_,
                        batch.rows, settings_.seed,     static_cast<uint64_t>(step), settings_.fp8_gradients};
  nn::Pass pass = pass_over(batch);
  pass.training = &training;
  model_.loss(pass, batch.losses, batch.targets);
  ops::sum_squares(context_, loss_squares_, batch.losses, !first);
}

void Step::accumulate(std::vector<double>& losses, int64_t step, std::span<const data::PackedSequence> sequences,
                      std::span<const int64_t> samples) {
  const size_t most = static_cast<size_t>(settings_.micro * settings_.unit);
  const size_t micros = (sequences.size() + most - 1) / most;
  size_t rounds = std::max<size_t>(1, micros);  // in which this rank gives its gradients to the others
  if (exchange_.every_micro()) rounds = static_cast<size_t>(ranks_.all_max(static_cast<int64_t>(rounds)));
  sink_->begin_step();
  const auto put = [&](size_t round) {
    if (round >= micros) return;
    const size_t begin = round * most;
    const size_t count = std::min(most, sequences.size() - begin);
    feed_->put(sequences.subspan(begin, count), samples.subspan(begin, count), settings_.sequence_length,
               settings_.unit, losses);
  };
  put(0);
  for (size_t round = 0; round < rounds; ++round) {
    const bool last = round + 1 == rounds;
    if (round >= micros) {
      sink_->empty_micro(last);
      continue;
    }
    sink_->begin_micro(last);
    compute(feed_->take(), step, round == 0);
    feed_->computed();
    put(round + 1);  // while the device computes
    sink_->end_micro();
  }
  if (micros == 0) {
    const double none = 0;
    device_.copy_from_host(loss_squares_.data, &none, sizeof none);
  }
  sink_->end_step();
}

void Step::enqueue(Begun& begun, int64_t step, double lr, std::span<const data::PackedSequence> sequences,
                   std::span<const int64_t> samples) {
  begun.updates = trained_.updates();
  count(begun.result, sequences);
  accumulate(begun.losses, step, sequences, samples);
  if (begun.result.counted == 0) return;  // there is nothing to update with
  decide(static_cast<double>(begun.result.counted));
  begun.verdict = begun_.size() > 1 ? 1 - begun_.front().verdict : 0;
  begun.undecided = true;
  const Verdict& verdict = verdicts_[begun.verdict];
  device_.start_copy_to_host(Stream::compute, verdict.decision.data(), decision_.data, decision_.bytes());
  if (trained_.ranges()) {
    for (const auto& [to, from] :
         {std::pair(&verdict.ranges, &trained_.ranges()), std::pair(&verdict.largest, &trained_.largest())}) {
      device_.start_copy_to_host(Stream::compute, to->data(), from->data, from->bytes());
    }
  }
  verdict.arrived->record(Stream::compute);
  update(lr);
}

void Step::begin(int64_t step, double lr, std::span<const data::PackedSequence> sequences,
                 std::span<const int64_t> samples) {
  if (begun_.size() == most_begun) throw_error(ErrorKind::internal, "{} steps are begun already", most_begun);
  begun_.emplace_back();
  whole([&] { enqueue(begun_.back(), step, lr, sequences, samples); });
}

void Step::whole(FunctionRef<void()> work) {
  const ThreadPool::Binding bound(*context_.threads);
  try {
    work();
  } catch (...) {
    feed_->forget();
    sink_->forget();
    begun_.clear();
    throw;
  }
}

StepResult Step::finish() {
  if (begun_.empty()) throw_error(ErrorKind::internal, "no step is begun");
  const ThreadPool::Binding bound(*context_.threads);
  Begun& begun = begun_.front();
  feed_->collect(begun.losses);
  StepResult result = begun.result;
  for (const std::vector<double>& losses : ranks_.gather(std::span<const double>(begun.losses))) {
    for (const double loss : losses) result.loss += loss;  // in the order of the step's sequences
  }
  if (!begun.undecided) {
    result.skipped = true;
    begun_.pop_front();
    return result;
  }
  const Verdict& verdict = verdicts_[begun.verdict];
  verdict.arrived->wait();
  const auto* decision = reinterpret_cast<const double*>(verdict.decision.data());
  result.loss /= static_cast<double>(result.counted);
  result.grad_norm = decision[0];
  result.skipped = decision[2] != 0;
  result.again = result.skipped && out_of_range(verdict);
  if (result.skipped) {
    start_over(verdict);
  } else {
    begun_.pop_front();
  }
  return result;
}

// Whether the step was halted because of ranges alone.
bool Step::out_of_range(const Verdict& verdict) const {
  if (!trained_.ranges()) return false;
  const auto* ranges = reinterpret_cast<const int32_t*>(verdict.ranges.data());
  const auto* largest = reinterpret_cast<const float*>(verdict.largest.data());
  bool some = false;
  for (size_t i = 0; i < trained_.tensors().size(); ++i) {
    if (!std::isfinite(largest[i])) return false;
    some = some || !ops::in_range(ranges[i], largest[i]);
  }
  return some;
}

// From before the first step that is begun, but with the ranges that follow from it: what was begun behind it has
// left others on the device.
void Step::start_over(const Verdict& verdict) {
  if (trained_.ranges()) {
    std::vector<int32_t> ranges(trained_.tensors().size());
    for (size_t i = 0; i < ranges.size(); ++i) {
      ranges[i] = ops::next_range(reinterpret_cast<const int32_t*>(verdict.ranges.data())[i],
                                  reinterpret_cast<const float*>(verdict.largest.data())[i]);
    }
    device_.copy_from_host(trained_.ranges().data, ranges.data(), trained_.ranges().bytes());
  }
  trained_.set_updates(begun_.front().updates);
  feed_->forget();
  begun_.clear();
  const std::array<double, 3> clear{};
  device_.copy_from_host(decision_.data, clear.data(), decision_.bytes());
}

StepResult Step::run(int64_t step, double lr, std::span<const data::PackedSequence> sequences,
                     std::span<const int64_t> samples) {
  refuse_while_begun("a step is run");
  while (true) {
    begin(step, lr, sequences, samples);
    const StepResult result = finish();
    if (!result.again) return result;
  }
}

void Step::refuse_while_begun(const char* what) const {
  if (!begun_.empty()) throw_error(ErrorKind::internal, "{} while another is begun", what);
}

std::string Step::first_fault(int64_t step, std::span<const data::PackedSequence> sequences,
                              std::span<const int64_t> samples, const WeightSet& weights) {
  refuse_while_begun("a step is run again");
  FaultFinder finder(device_, model_.spec(), weights, trained_);
  struct Watching {
    ops::Context& context;
    ~Watching() { context.watch = nullptr; }
  } const watching{context_};
  context_.watch = &finder;
  std::vector<double> losses;
  whole([&] {
    accumulate(losses, step, sequences, samples);
    feed_->collect(losses);
  });
  for (const std::string& found : ranks_.gather(finder.found())) {
    if (!found.empty()) return found;
  }
  return {};
}

void Step::rehearse(std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples) {
  refuse_while_begun("a step is rehearsed");
  std::vector<double> losses;
  exchange_.keep_apart(true);
  struct Together {
    Exchange& exchange;
    ~Together() { exchange.keep_apart(false); }
  } const together{exchange_};
  whole([&] {
    accumulate(losses, 1, sequences, samples);
    feed_->collect(losses);
  });
}

Step::Loss Step::evaluate(std::span<const data::PackedSequence> sequences) {
  refuse_while_begun("a model is evaluated");
  std::vector<double> losses;
  const size_t most = static_cast<size_t>(settings_.micro * settings_.unit);
  const auto put = [&](size_t begin) {
    if (begin >= sequences.size()) return;
    const size_t count = std::min(most, sequences.size() - begin);
    feed_->put(sequences.subspan(begin, count), {}, settings_.sequence_length, settings_.unit, losses);
  };
  whole([&] {
    put(0);
    for (size_t begin = 0; begin < sequences.size(); begin += most) {
      const MicroBatch& batch = feed_->take();
      nn::Pass pass = pass_over(batch);
      model_.loss(pass, batch.losses, batch.targets);
      feed_->computed();
      put(begin + most);
    }
    feed_->collect(losses);
  });
  Loss total;
  for (const double loss : losses) total.sum += loss;
  for (const data::PackedSequence& sequence : sequences) total.counted += sequence.counted;
  return total;
}

void Step::refresh_weights() {
  trained_.refresh_weights(context_);
  exchange_.gather_weights();
}

Tensor Step::master(size_t place, Buffer& memory) {
  const TrainedTensor& t = trained_.tensors()[place];
  if (trained_.share().stage() == 0) return t.master;
  memory = Buffer(device_, static_cast<size_t>(t.shape.elements()) * size_of(t.master.dtype));
  const Tensor whole = memory.view(t.master.dtype, Shape{t.shape.elements()});
  exchange_.gather_master(place, whole);
  return whole.reshape(t.shape);
}

}  // namespace ingot::train
