#include "bench/decode.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "base/machine.h"
#include "infer/engine.h"
#include "runtime/device_rates.h"
#include "runtime/session.h"
#include "tensor/tolerance.h"

namespace ingot::bench {

namespace {

// Adapters with random weights, assigned to requests round-robin.
struct DecodeAdapters {
  int64_t count = 0;
  spec::LoraSpec lora;
  bool alternate = false;  // all adapters get slots, even if there are fewer requests
};

// A serving engine with a random model, and its requests.
class DecodeBench {
 public:
  DecodeBench(runtime::Runtime& runtime, const spec::ModelSpec& model, DType activation,
              const checkpoint::WeightStorage& weights, int64_t batch, int64_t context, const DecodeAdapters& adapters,
              const DecodeOptions& options)
      : model_(model), weights_(random_model(*runtime.device, model, weights, 1)) {
    computed_ = models::make_model(model_, weights_, *runtime.device);
    infer::EngineSettings settings;
    settings.activation = activation;
    settings.context = context;
    settings.sequences = batch;
    settings.decoded = weights.decoded(activation);
    settings.row_invariant = options.row_invariant;
    settings.int8_activations = runtime::asks_for_int8(options.compute, *runtime.device);
    if (settings.int8_activations) runtime::require_int8_weights(weights_);
    if (adapters.count > 0) {
      settings.adapter_rank = adapters.lora.rank;
      settings.adapter_slots = adapters.alternate ? adapters.count : std::min(adapters.count, batch);
    }
    if (adapters.alternate) {
      settings.prefix_cache = true;
      settings.pages = (1 + adapters.count) * (context / settings.page_tokens + 1);  // cached, plus one request
    }
    page_tokens_ = settings.page_tokens;
    for (int64_t i = 0; i < adapters.count; ++i) {
      adapters_.push_back(random_adapter(model_, adapters.lora, activation, i));
    }
    engine_.emplace(*runtime.device, runtime.registry, *runtime.threads, *computed_, settings);
  }

  // Queues `batch` prompts of `prompt` tokens, each to be answered with `tokens` tokens.
  void submit(int64_t batch, int64_t prompt, int64_t tokens) {
    for (int64_t i = 0; i < batch; ++i) {
      infer::Request request;
      request.prompt = random_sequence(model_, prompt, prompt, static_cast<uint64_t>(i)).ids;
      request.max_tokens = tokens;
      request.cache_salt = ++salt_;  // not shared through the prefix cache
      if (!adapters_.empty()) request.adapter = adapters_[static_cast<size_t>(i) % adapters_.size()];
      engine_->submit(std::move(request));
    }
  }
  // Queues a prompt of whole pages plus one token; when the pages are cached, it takes a step of one token. Returns its
  // length.
  int64_t submit_cached_prefix(int64_t prompt, size_t adapter) {
    infer::Request request;
    const int64_t length = (prompt - 1) / page_tokens_ * page_tokens_ + 1;
    request.prompt = random_sequence(model_, length, length, 0).ids;
    request.max_tokens = 1;
    request.adapter = adapters_[adapter];
    engine_->submit(std::move(request));
    return length;
  }
  std::vector<infer::Output> step() { return engine_->step(); }
  bool idle() const { return engine_->idle(); }
  infer::EngineCounts counts() const { return engine_->counts(); }
  void observe(ops::OpObserver* observer) { engine_->observe(observer); }

 private:
  spec::ModelSpec model_;
  WeightSet weights_;
  std::unique_ptr<models::Model> computed_;
  std::vector<std::shared_ptr<const infer::HostAdapter>> adapters_;
  std::optional<infer::Engine> engine_;
  int64_t page_tokens_ = 0;
  uint64_t salt_ = 0;
};

// Compares log-probabilities of greedily sampled tokens of the reduced model, up to where the devices sample different
// tokens (in 16 bits two tokens may be that close).
SmallCheck check_decode(runtime::Runtime& runtime, const spec::ModelSpec& model, DType activation,
                        const checkpoint::WeightStorage& weights, const DecodeAdapters& adapters,
                        const DecodeOptions& options) {
  const spec::ModelSpec small = reduced(model);
  const int64_t prompt = std::min<int64_t>(20, small.context / 2);
  constexpr int64_t tokens = 8;
  const int64_t batch = std::max<int64_t>(adapters.count, 1);  // one request per adapter
  using Choices = std::vector<std::vector<infer::SampledToken>>;
  const auto serve = [&](runtime::Runtime& on) {
    DecodeBench bench(on, small, activation, weights, batch, prompt + tokens, adapters, options);
    bench.submit(batch, prompt, tokens);
    Choices choices(static_cast<size_t>(batch));
    while (!bench.idle()) {
      for (const infer::Output& output : bench.step()) {
        if (output.token) choices.at(static_cast<size_t>(output.request - 1)).push_back(*output.token);
      }
    }
    return choices;
  };
  runtime::Runtime cpu = runtime::open_runtime("cpu", 1);
  const Choices expected = serve(cpu);
  const Choices found = serve(runtime);
  SmallCheck check;
  check.allowed = tolerance(activation, small.vocab);
  check.least = 1;
  for (size_t r = 0; r < expected.size(); ++r) {
    for (size_t i = 0; i < std::min(expected[r].size(), found[r].size()); ++i) {
      check.cpu.push_back(static_cast<double>(expected[r][i].logprob));
      check.device.push_back(static_cast<double>(found[r][i].logprob));
      if (expected[r][i].id != found[r][i].id) break;
    }
  }
  return check;
}

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Median times of steps with one adapter and of steps that alternate between two, in alternating blocks of `steps`.
// `allowed`: max relative difference of the log-probabilities of one adapter's steps.
Alternation alternate(DecodeBench& bench, int64_t prompt, int64_t steps, double allowed) {
  double logprobs[2] = {};
  std::vector<double> times[2];
  const auto step = [&](size_t adapter, bool first) {
    const int64_t length = bench.submit_cached_prefix(prompt, adapter);
    const double from = steady_seconds();
    const std::vector<infer::Output> outputs = bench.step();
    const double took = steady_seconds() - from;
    double& known = logprobs[adapter];
    if (outputs.size() != 1 || !outputs[0].token || (!first && outputs[0].cached_tokens != length - 1)) {
      throw_error(ErrorKind::internal, "a cached prompt of {} tokens was not decoded in a step of one token", length);
    }
    const double logprob = static_cast<double>(outputs[0].token->logprob);
    if (first) known = logprob;
    if (!(std::abs(logprob - known) <= allowed * std::max(1.0, std::abs(known)))) {
      throw_error(ErrorKind::internal, "an adapter's log-probability is {:.6g} at first and {:.6g} later", known,
                  logprob);
    }
    return took;
  };
  const auto block = [&](size_t first, bool alternating, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const double took = step(alternating ? static_cast<size_t>(i) % 2 : first, false);
      times[alternating ? 1 : 0].push_back(took);
    }
  };
  // Fills the prefix cache with the prompts.
  for (size_t adapter = 0; adapter < 2; ++adapter) {
    bench.submit_cached_prefix(prompt, adapter);
    while (!bench.idle()) bench.step();
    step(adapter, true);
  }
  if (logprobs[0] == logprobs[1]) throw_error(ErrorKind::internal, "two different adapters gave the same text");
  for (const bool timed : {false, true}) {
    for (std::vector<double>& each : times) each.clear();
    for (size_t round = 0; round < (timed ? 4 : 1); ++round) {
      block(round % 2, false, steps);
      block(0, true, steps);
    }
  }
  return {median(times[0]), median(times[1])};
}

// The mean of the steps that decode a token for each request.
StepProfile profile_steps(const runtime::Runtime& runtime, DecodeBench& bench, const spec::ModelSpec& model,
                          const DecodeOptions& options) {
  StepProfile profile;
  profile.most = runtime::find_peak_rates(runtime);
  // FLOPs of attention per token and layer: 2 for each product with a key and with a value, in the middle of an answer.
  const double context = static_cast<double>(options.prompt) + static_cast<double>(options.tokens) / 2;
  double attention = 0;
  for (const spec::LayerSpec& layer : model.layers) {
    const int64_t window = layer.attention.window;
    const double keys = window > 0 ? std::min(context, static_cast<double>(window)) : context;
    attention += 4 * keys * static_cast<double>(layer.attention.query_width());
  }
  OpProfile ops(*runtime.device, attention / static_cast<double>(model.num_layers()));
  bench.submit(options.batch, options.prompt, options.tokens);
  // Prompts may take several steps, so that some requests begin before others. `produced`: tokens of the first one.
  int64_t produced = 0;
  for (int64_t given = 0; given < options.batch; produced += given > 0 ? 1 : 0) given = std::ssize(bench.step());
  // Without the last one, in which a GPU, which runs a step ahead, is given nothing more.
  const int64_t steps = options.tokens - produced - 1;
  if (steps < 1) {
    throw_hint(ErrorKind::usage, "raise --tokens or lower --batch",
               "--profile: the first of {} requests ends before all decode", options.batch);
  }
  bench.observe(&ops);
  const double from = steady_seconds();
  for (int64_t i = 0; i < steps; ++i) bench.step();
  profile.seconds = (steady_seconds() - from) / static_cast<double>(steps);
  bench.observe(nullptr);
  while (!bench.idle()) bench.step();
  profile.rows = ops.rows(steps);
  return profile;
}

// Bytes of weights that are read for one token: all except embedding tables of which only single rows are looked up.
double read_bytes(const spec::ModelSpec& model, const checkpoint::WeightStorage& weights) {
  double bytes = 0;
  for (const spec::ParamSpec& p : spec::parameters(model)) {
    const bool looked_up =
        (p.role == spec::Role::embedding && !model.tied_head) || p.role == spec::Role::position_embedding;
    if (looked_up) continue;
    if (p.shape.size() == 2) {
      bytes += static_cast<double>(p.shape[0]) * static_cast<double>(row_bytes(weights.of(p), p.shape[1]));
    } else {
      bytes += static_cast<double>(p.elements()) * sizeof(float);
    }
  }
  return bytes;
}

int64_t adapter_elements(const spec::ModelSpec& model, const DecodeAdapters& adapters) {
  return adapters.count > 0 ? spec::num_parameters(spec::lora_parameters(model, adapters.lora)) : 0;
}

}  // namespace

DecodeReport bench_decode(const DecodeOptions& options) {
  const DType activation = runtime::activation_of(options.dtype);
  const checkpoint::WeightStorage weights = random_weight_storage(options.weights, activation);
  const int64_t batch = options.batch, prompt = options.prompt, tokens = options.tokens;
  if (batch < 1 || prompt < 1 || tokens < 6) {
    throw_error(ErrorKind::usage, "--batch {} --prompt {} --tokens {}: must be at least 1, 1 and 6", batch, prompt,
                tokens);
  }
  runtime::Runtime runtime = runtime::open_runtime(options.device, options.threads);
  DecodeReport report;
  report.model = bench_spec(options.model);
  const spec::ModelSpec& model = report.model;
  if (prompt > model.context || tokens > model.context) {
    throw_error(ErrorKind::usage, "--prompt {} --tokens {}: together more than the model's context of {}", prompt,
                tokens, model.context);
  }
  DecodeAdapters adapters{
      options.adapters, {.rank = options.rank, .alpha = static_cast<double>(options.rank), .targets = options.targets}};
  if (options.targets.empty()) adapters.lora.targets = {"all-linear"};
  if (options.adapters < 0 || options.adapters > 1 << 24 || (options.adapters > 0 && options.rank < 1)) {
    throw_error(ErrorKind::usage, "--adapters {} --rank {}: must be 0 to {}, and at least 1", options.adapters,
                options.rank, 1 << 24);
  }
  if (options.alternate && (batch != 1 || options.adapters != 2)) {
    throw_error(ErrorKind::usage, "--alternate needs --batch 1 and --adapters 2, not {} and {}", batch,
                options.adapters);
  }
  adapters.alternate = options.alternate;
  const SmallCheck check = check_decode(runtime, model, activation, weights, adapters, options);
  if (!check.agrees()) {
    throw_error(ErrorKind::internal,
                "{} disagrees with the CPU: log-probabilities of a small model are {:.6g}, on the CPU {:.6g}; "
                "allowed relative difference {:.2g}",
                runtime.device->name(), fmt::join(check.device, ", "), fmt::join(check.cpu, ", "), check.allowed);
  }
  const bool gpu = runtime.device->kind() == DeviceKind::cuda || runtime.device->kind() == DeviceKind::hip;
  if (gpu) report.copied = runtime::measure_gpu(*runtime.device, runtime.registry).copied;

  DecodeBench bench(runtime, model, activation, weights, batch, prompt + tokens, adapters, options);
  // An untimed first round.
  bench.submit(batch, prompt, 3);
  while (!bench.idle()) bench.step();

  bench.submit(batch, prompt, tokens);
  const double begin = steady_seconds();
  std::vector<double> steps, outside;  // host time of the engine
  for (int64_t given = 0; !bench.idle();) {
    const double on_device = bench.counts().device_seconds;
    const double from = steady_seconds();
    const std::vector<infer::Output> outputs = bench.step();  // waits for a batch; a GPU has been given the next one
    const double took = steady_seconds() - from;
    for (const infer::Output& each : outputs) {
      if (each.token && !std::isfinite(each.token->logprob)) {
        throw_error(ErrorKind::internal, "a token's log-probability is {}", each.token->logprob);
      }
    }
    const bool all_decode = given >= batch && std::ssize(outputs) == batch;
    given += std::ssize(outputs);
    if (all_decode) {
      steps.push_back(took);
      outside.push_back(took - (bench.counts().device_seconds - on_device));
    } else if (report.prompt_seconds == 0 && given >= batch) {
      report.prompt_seconds = steady_seconds() - begin;
    }
  }
  if (steps.empty()) throw_error(ErrorKind::internal, "no step decoded a token for every request");
  report.seconds = median(steps);
  report.fastest = steps.front();  // median() sorts
  report.outside_us = 1e6 * median(outside);
  if (options.profile) report.profile = profile_steps(runtime, bench, model, options);
  if (options.alternate) report.alternation = alternate(bench, prompt, tokens, check.allowed);
  // All weights, those of every adapter in the batch, and the keys and values of each request in the middle of its
  // answer.
  const double rows = static_cast<double>(batch) * (static_cast<double>(prompt) + static_cast<double>(tokens) / 2);
  const double cached =
      rows * static_cast<double>(spec::cache_elements(model)) * static_cast<double>(size_of(activation));
  report.adapter_bytes = static_cast<double>(std::min(options.adapters, batch) * adapter_elements(model, adapters)) *
                         static_cast<double>(size_of(activation));
  report.read_bytes = read_bytes(model, weights) + report.adapter_bytes + cached;
  report.memory_bytes = gpu ? runtime.device->memory_bytes() - runtime.device->memory_available() : memory_use().peak;
  report.device = runtime.device->name();
  report.arch = runtime.device->arch();
  report.device_model = runtime.model;
  report.check = check;
  return report;
}

}  // namespace ingot::bench
