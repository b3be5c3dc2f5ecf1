#include "train/step.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/adamw.h"
#include "ops/adamw_bytes.h"
#include "train/fault_finder.h"

namespace ingot::train {

namespace {

models::PassShape pass_shape(const StepSettings& settings, int64_t adapter_rank, bool decoded, int threads) {
  models::PassShape shape;
  shape.tokens = settings.micro * settings.unit * settings.sequence_length;
  shape.longest = settings.sequence_length;
  shape.adapter_rank = adapter_rank;
  shape.activation = settings.activation;
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

// Scratch of the gradient norm: the sum of a tensor's squares, and what makes it.
size_t norm_bytes(const spec::ModelSpec& model) {
  int64_t most = 0;
  for (const spec::ParamSpec& p : spec::parameters(model)) most = std::max(most, p.elements());
  return Arena::footprint(sizeof(double)) + ops::sum_squares_bytes(most);
}

}  // namespace

StepBytes Step::bytes(const spec::ModelSpec& model, const StepSettings& settings, int64_t lowest_layer,
                      int64_t adapter_rank, bool decoded, int threads) {
  const models::PassShape shape = pass_shape(settings, adapter_rank, decoded, threads);
  const size_t t = static_cast<size_t>(shape.tokens);
  StepBytes bytes;
  bytes.saved = spec::saved_bytes(model, settings.recompute, static_cast<int64_t>(size_of(settings.activation)),
                                  shape.tokens, model.layers - lowest_layer);
  const models::PassBytes pass = models::pass_bytes(model, shape);
  bytes.scratch = std::max({pass.training, pass.loss, norm_bytes(model)});
  // ids, positions, targets, losses; sub-sequence offsets (at most one a token, and one); dropout rows.
  bytes.batch = 4 * Arena::footprint(t * 4) + Arena::footprint((t + 1) * 4) + Arena::footprint(t * 8);
  return bytes;
}

Step::Step(Device& device, const ops::Registry& registry, ThreadPool& threads, models::Model& model, Trained& trained,
           StepSettings settings, bool decoded)
    : device_(device),
      model_(model),
      trained_(trained),
      settings_(settings),
      context_{device, registry, scratch_, &threads},
      sink_(trained) {
  model.set_trained(trained.place_of_parameter(), trained.lowest_layer());
  const StepBytes sizes =
      bytes(model.spec(), settings, trained.lowest_layer(), rank_of(trained), decoded, threads.threads());
  scratch_ = Arena(device, sizes.scratch, "scratch");
  saved_ = Arena(device, sizes.saved, "saved activations");
  batch_ = Arena(device, sizes.batch, "batch");
}

Step::Batch Step::stage(std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples) {
  const int64_t length = settings_.sequence_length;
  const int64_t tokens = static_cast<int64_t>(sequences.size()) * length;
  std::vector<int32_t> ids, place, targets, offsets{0};
  std::vector<int64_t> rows;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const data::PackedSequence& sequence = sequences[i];
    if (static_cast<int64_t>(sequence.ids.size()) != length) {
      throw_error(ErrorKind::internal, "a packed sequence of {} tokens in a step of {}", sequence.ids.size(), length);
    }
    const int32_t base = static_cast<int32_t>(ids.size());
    ids.insert(ids.end(), sequence.ids.begin(), sequence.ids.end());
    targets.insert(targets.end(), sequence.targets.begin(), sequence.targets.end());
    const std::vector<int32_t> positions = data::positions(sequence);
    place.insert(place.end(), positions.begin(), positions.end());
    for (size_t s = 1; s < sequence.offsets.size(); ++s) offsets.push_back(base + sequence.offsets[s]);
    const int64_t sample = samples.empty() ? 0 : samples[i];
    for (int64_t t = 0; t < length; ++t) rows.push_back((sample << 32) + t);
  }

  const auto upload = [&](DType dtype, const void* values, size_t count) {
    const Tensor tensor = batch_.take(dtype, Shape{static_cast<int64_t>(count)});
    device_.copy_from_host(tensor.data, values, tensor.bytes());
    return tensor;
  };
  Batch batch;
  batch.tokens.ids = upload(DType::i32, ids.data(), ids.size());
  batch.tokens.positions = upload(DType::i32, place.data(), place.size());
  batch.tokens.offsets = upload(DType::i32, offsets.data(), offsets.size());
  batch.targets = upload(DType::i32, targets.data(), targets.size());
  batch.rows = upload(DType::i64, rows.data(), rows.size());
  batch.losses = batch_.take(DType::f32, Shape{tokens});
  for (int64_t row = 0; row <= tokens; row += settings_.unit * length) batch.unit_offsets.push_back(row);
  return batch;
}

nn::Pass Step::pass_over(const Batch& batch) {
  std::vector<nn::AdapterSegment> adapters;
  if (trained_.adapter()) adapters.push_back({0, batch.tokens.tokens(), trained_.adapter()});
  return {context_, batch.tokens, settings_.activation, std::move(adapters)};
}

// In double and in the order of the tokens: the same for every micro-batch.
double Step::sum_losses(const Tensor& losses) const {
  std::vector<float> host(static_cast<size_t>(losses.elements()));
  device_.copy_to_host(host.data(), losses.data, losses.bytes());
  double sum = 0;
  for (float loss : host) sum += static_cast<double>(loss);
  return sum;
}

double Step::gradient_norm() {
  const Arena::Scope scope(scratch_);
  const Tensor sum = scratch_.take(DType::f64, Shape{1});
  double squares = 0;
  for (const TrainedTensor& t : trained_.tensors()) {
    ops::sum_squares(context_, sum, t.gradient.reshape(Shape{t.gradient.elements()}));
    double one = 0;
    device_.copy_to_host(&one, sum.data, sizeof one);
    squares += one;
  }
  return std::sqrt(squares);
}

void Step::update(double lr, double gradient_scale) {
  trained_.set_updates(trained_.updates() + 1);
  const OptimizerSettings& optimizer = settings_.optimizer;
  for (const TrainedTensor& t : trained_.tensors()) {
    const Shape flat{t.shape.elements()};
    ops::AdamwState state{t.master.reshape(flat), t.moment1.reshape(flat), t.moment2.reshape(flat), {}};
    if (t.weight.data != t.master.data) state.weight = t.weight.reshape(flat);
    ops::AdamwAttributes attributes;
    attributes.lr = static_cast<float>(lr);
    attributes.beta1 = static_cast<float>(optimizer.beta1);
    attributes.beta2 = static_cast<float>(optimizer.beta2);
    attributes.epsilon = static_cast<float>(optimizer.epsilon);
    attributes.weight_decay = t.decay ? static_cast<float>(optimizer.weight_decay) : 0;
    attributes.gradient_scale = static_cast<float>(gradient_scale);
    attributes.step = trained_.updates();
    ops::adamw(context_, state, t.gradient.reshape(flat), attributes);
  }
}

StepResult Step::accumulate(int64_t step, std::span<const data::PackedSequence> sequences,
                            std::span<const int64_t> samples) {
  if (sequences.empty() || static_cast<int64_t>(sequences.size()) % settings_.unit != 0) {
    throw_error(ErrorKind::internal, "{} sequences are not whole units of {}", sequences.size(), settings_.unit);
  }
  StepResult result;
  sink_.begin_step();
  const size_t most = static_cast<size_t>(settings_.micro * settings_.unit);
  for (size_t begin = 0; begin < sequences.size(); begin += most) {
    const size_t count = std::min(most, sequences.size() - begin);
    const Arena::Scope scope(batch_);
    const Batch batch = stage(sequences.subspan(begin, count), samples.subspan(begin, count));
    nn::Training training{sink_,      batch.unit_offsets, settings_.recompute,        saved_,
                          batch.rows, settings_.seed,     static_cast<uint64_t>(step)};
    nn::Pass pass = pass_over(batch);
    pass.training = &training;
    model_.loss(pass, batch.losses, batch.targets);
    for (size_t i = 0; i < count; ++i) {
      const int64_t row = static_cast<int64_t>(i) * settings_.sequence_length;
      result.loss += sum_losses(batch.losses.slice(row, row + settings_.sequence_length));
      const data::PackedSequence& sequence = sequences[begin + i];
      result.counted += sequence.counted;
      for (size_t s = 1; s < sequence.offsets.size(); ++s) {
        const double length = sequence.offsets[s] - sequence.offsets[s - 1];
        result.squared_lengths += length * length;
      }
    }
    result.tokens += batch.tokens.tokens();
  }
  sink_.end_step(context_);
  if (!sink_.complete()) throw_error(ErrorKind::internal, "step {}: a trained tensor got no gradient", step);
  return result;
}

StepResult Step::run(int64_t step, double lr, std::span<const data::PackedSequence> sequences,
                     std::span<const int64_t> samples) {
  StepResult result = accumulate(step, sequences, samples);
  if (result.counted == 0) {
    result.skipped = true;
    return result;
  }
  const double counted = static_cast<double>(result.counted);
  result.loss /= counted;
  result.grad_norm = gradient_norm() / counted;
  if (!std::isfinite(result.grad_norm) || !std::isfinite(result.loss)) {
    result.skipped = true;
    return result;
  }
  // PyTorch's clip_grad_norm_: the factor is max_norm / (norm + 1e-6), at most 1.
  const double clip = settings_.optimizer.clip_grad_norm;
  const double factor = clip > 0 ? std::min(1.0, clip / (result.grad_norm + 1e-6)) : 1.0;
  update(lr, factor / counted);
  return result;
}

std::string Step::first_fault(int64_t step, std::span<const data::PackedSequence> sequences,
                              std::span<const int64_t> samples, const WeightSet& weights) {
  FaultFinder finder(device_, model_.spec(), weights, trained_);
  struct Watching {
    ops::Context& context;
    ~Watching() { context.watch = nullptr; }
  } const watching{context_};
  context_.watch = &finder;
  accumulate(step, sequences, samples);
  return finder.found();
}

Step::Loss Step::evaluate(std::span<const data::PackedSequence> sequences) {
  Loss total;
  const size_t most = static_cast<size_t>(settings_.micro * settings_.unit);
  for (size_t begin = 0; begin < sequences.size(); begin += most) {
    const size_t count = std::min(most, sequences.size() - begin);
    const Arena::Scope scope(batch_);
    const Batch batch = stage(sequences.subspan(begin, count), {});
    nn::Pass pass = pass_over(batch);
    model_.loss(pass, batch.losses, batch.targets);
    for (size_t i = 0; i < count; ++i) {
      const int64_t row = static_cast<int64_t>(i) * settings_.sequence_length;
      total.sum += sum_losses(batch.losses.slice(row, row + settings_.sequence_length));
      total.counted += sequences[begin + i].counted;
    }
  }
  return total;
}

}  // namespace ingot::train
