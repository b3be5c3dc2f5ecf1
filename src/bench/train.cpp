#include "bench/train.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/clock.h"
#include "base/error.h"
#include "base/machine.h"
#include "runtime/device_rates.h"
#include "spec/flops.h"

namespace ingot::bench {

namespace {

// The value of option --`option`: the one of `values` whose name() is `word`.
template <class Enum>
Enum value_of(const char* option, const std::string& word, std::initializer_list<Enum> values) {
  std::string names;
  for (const Enum* value = values.begin(); value != values.end(); ++value) {
    if (word == name(*value)) return *value;
    if (value != values.begin()) names += value + 1 == values.end() ? " or " : ", ";
    names += name(*value);
  }
  throw_hint(ErrorKind::usage, fmt::format("use {}", names), "--{} '{}' is not known", option, word);
}

train::Precision precision_of(const std::string& word) {
  using enum train::Precision;
  return value_of("dtype", word, {bf16, fp32, fp8});
}

// The type of the weights: with `--dtype fp8`, as in recipes, a frozen base is in fp8.
std::string weights_of(const TrainOptions& options) {
  if (precision_of(options.dtype) != train::Precision::fp8) return options.weights;
  if (options.weights != "auto" && options.weights != "fp8") {
    throw_hint(ErrorKind::usage, "remove --weights, or use --dtype bf16",
               "--dtype fp8 needs fp8 weights, but --weights is {}", options.weights);
  }
  return options.rank ? "fp8" : options.weights;
}

DeviceRates rates_of(runtime::Runtime& runtime, DType activation) {
  if (runtime.device->kind() != DeviceKind::cpu) return runtime::gpu_training_rates(runtime, activation);
  Arena scratch(*runtime.device, size_t{256} << 20, "scratch");
  ops::Context context{*runtime.device, runtime.registry, scratch, runtime.threads.get()};
  return runtime::cpu_rates(runtime::rate_cache(runtime::rates_key(runtime)), context, activation).rates;
}

train::StepWork work_of(const TrainOptions& options, const TrainReport& report, const train::StepResult& step) {
  const spec::ModelSpec& model = report.model;
  const std::optional<spec::LoraSpec>& lora = report.plan.lora;
  const auto tokens = static_cast<double>(step.tokens);
  const spec::AttentionSquares squares{tokens, step.squared_lengths};
  const spec::AttentionSquares whole{tokens, tokens * static_cast<double>(options.sequence)};
  const std::vector<spec::LoraParam> adapters =
      lora ? spec::lora_parameters(model, *lora) : std::vector<spec::LoraParam>{};
  const auto flops = [&](spec::AttentionSquares s, spec::AttentionCount count) {
    return lora ? spec::lora_training_flops(model, adapters, s, count) : spec::training_flops(model, s, count);
  };
  train::StepWork work;
  work.useful = work.executed = flops(squares, spec::AttentionCount::causal);
  work.full_square = flops(whole, spec::AttentionCount::full_square);
  if (report.plan.step.recompute == spec::Recompute::full) {
    work.executed += spec::recompute_flops(model, squares, spec::AttentionCount::causal);
  }
  return work;
}

}  // namespace

double TrainReport::mean_seconds() const {
  double sum = 0;
  for (const double s : seconds) sum += s;
  return sum / static_cast<double>(seconds.size());
}

double TrainReport::median_seconds() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

runs::RunPlan plan_train(const TrainOptions& options, const runtime::Runtime& runtime, const spec::ModelSpec& model) {
  const int64_t sequence = options.sequence, document = options.document_tokens(), global = options.global,
                warmup = options.warmup, steps = options.steps;
  if (sequence < 2 || document < 2 || document > sequence || global < 1 || warmup < 1 || steps < 2) {
    throw_error(ErrorKind::usage,
                "--sequence {} --document {} --global {} --warmup {} --steps {}: must be at least 2, 2 (and at most "
                "the sequence), 1, 1 and 2",
                sequence, document, global, warmup, steps);
  }
  constexpr int64_t max_count = int64_t{1} << 31;
  if (sequence > data::max_sequence_length || std::max({global, warmup, steps}) > max_count) {
    throw_error(ErrorKind::usage,
                "--sequence {} --global {} --warmup {} --steps {}: must be at most {}, and {} each for the others",
                sequence, global, warmup, steps, data::max_sequence_length, max_count);
  }
  using spec::Recompute;
  using train::MasterType, train::OptimizerName, train::StateType;
  train::Recipe recipe;
  recipe.precision = precision_of(options.dtype);
  recipe.optimizer.name =
      value_of("optimizer", options.optimizer,
               {OptimizerName::adamw, OptimizerName::muon, OptimizerName::sgd, OptimizerName::lion});
  recipe.optimizer.state_dtype =
      value_of("state-dtype", options.state_dtype, {StateType::fp32, StateType::bf16, StateType::int8});
  recipe.optimizer.master = value_of("master", options.master, {MasterType::bf16, MasterType::fp32});
  recipe.recompute = value_of("recompute", options.recompute, {Recompute::none, Recompute::selective, Recompute::full});
  if (options.bitwise) recipe.determinism = train::Determinism::bitwise;
  if (options.rank) recipe.adapter = train::AdapterRecipe{.rank = {options.rank}};
  recipe.data.sequence_length = sequence;
  recipe.batch.global = global;
  recipe.batch.micro.value = options.micro;
  recipe.steps = warmup + steps;
  recipe.weights = weights_of(options);
  data::DatasetStatistics data;
  data.num_sequences = 1;
  data.num_loss_tokens = sequence;
  for (int64_t begin = 0; begin < sequence; begin += document) {
    const auto length = static_cast<double>(std::min(document, sequence - begin));
    data.squared_lengths += length * length;
  }
  const DType activation = train::dtype_of(recipe.precision);
  return runs::plan_run(recipe, model, data, 0,
                        {random_model_bytes(model, random_weight_storage(recipe.weights, activation)), 0},
                        runtime.device->memory_available(), runtime);
}

TrainReport bench_train(const TrainOptions& options) {
  if (!(options.seconds > 0)) throw_error(ErrorKind::usage, "--seconds {}; must be above 0", options.seconds);
  const DType activation = train::dtype_of(precision_of(options.dtype));
  TrainReport report;
  const std::string weights = weights_of(options);
  report.weights = weights == "auto" ? ingot::name(activation) : weights;
  report.decoded = random_weight_storage(weights, activation).decoded(activation);
  if (report.decoded && !options.rank) {
    throw_hint(ErrorKind::usage, "add --rank R to train LoRA adapters on the frozen weights",
               "--weights {}: weights of this type cannot be trained", report.weights);
  }
  runtime::Runtime runtime = runtime::open_runtime(options.device, options.threads);
  report.model = bench_spec(options.model);
  const spec::ModelSpec& model = report.model;
  report.plan = plan_train(options, runtime, model);
  const TrainJob job{report.plan.lora, report.plan.step, report.plan.optimizer_types, options.document_tokens(), 1,
                     weights};

  const SmallCheck check = report.check = check_small(runtime, model, job);
  if (!check.agrees()) {
    throw_error(ErrorKind::internal,
                "{} disagrees with the CPU: losses and gradient norms of a small model are {:.6g}, on the CPU {:.6g}; "
                "allowed relative difference {:.2g}",
                runtime.device->name(), fmt::join(check.device, ", "), fmt::join(check.cpu, ", "), check.allowed);
  }

  report.rates = rates_of(runtime, job.step.activation);
  if (options.profile) report.profile.emplace().most = runtime::find_peak_rates(runtime);
  TrainBench bench(runtime, model, job);
  for (int64_t step = 0; step < options.warmup; ++step) {
    const train::StepResult result = bench.run(options.global);
    if (step == 0) report.first_loss = result.loss;
  }
  train::StepResult last;
  const double begin = steady_seconds();
  for (int64_t step = 0; step < options.steps && (step < 2 || steady_seconds() - begin < options.seconds); ++step) {
    const double from = steady_seconds();
    last = bench.run(options.global);
    report.seconds.push_back(steady_seconds() - from);
    report.losses.push_back(last.loss);
    if (last.skipped || !std::isfinite(last.loss)) {
      throw_error(ErrorKind::internal, "timed step {}: loss {} or gradient norm {} is not finite", step + 1, last.loss,
                  last.grad_norm);
    }
  }
  report.tokens = last.tokens;

  if (report.profile) {
    const auto tokens = static_cast<double>(last.tokens);
    const double attention = spec::attention_flops(model, {tokens, last.squared_lengths}, spec::AttentionCount::causal);
    OpProfile ops(*runtime.device, attention / tokens / static_cast<double>(model.num_layers()));
    bench.step().context().watch = &ops;
    const double from = steady_seconds();
    bench.run(options.global);
    report.profile->seconds = steady_seconds() - from;
    bench.step().context().watch = nullptr;
    report.profile->rows = ops.rows();
  }
  report.work = work_of(options, report, last);
  const train::Utilisation::Result result = train::Utilisation(report.rates).of(report.work, report.mean_seconds());
  report.shares = result.shares;
  report.warning = result.warning;
  const DeviceKind kind = runtime.device->kind();
  report.memory_bytes = kind == DeviceKind::cpu || kind == DeviceKind::sim
                            ? memory_use().peak
                            : runtime.device->memory_bytes() - runtime.device->memory_available();
  report.device = runtime.device->name();
  report.arch = runtime.device->arch();
  report.device_model = runtime.model;
  return report;
}

}  // namespace ingot::bench
