// ingot bench train: tokens per second of a training job, with random weights and tokens.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/machine.h"
#include "base/strings.h"
#include "bench/op_profile.h"
#include "bench/random_model.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "runs/plan.h"
#include "runtime/device_rates.h"
#include "spec/flops.h"
#include "train/utilisation.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

// Parses a Precision or a StateType.
template <class Type>
Type type_of(const char* option, const std::string& word) {
  if (word == "bf16") return Type::bf16;
  if (word == "fp32") return Type::fp32;
  if (word == "fp8") {
    throw_hint(ErrorKind::unsupported, "use bf16 or fp32; to train in fp8, use a recipe with precision: fp8",
               "--{} fp8: random weights in fp8 are not supported by ingot bench train", option);
  }
  throw_hint(ErrorKind::usage, "use bf16 or fp32", "--{} '{}' is not known", option, word);
}

spec::Recompute recompute_of(const std::string& word) {
  for (const spec::Recompute each : {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full}) {
    if (word == spec::name(each)) return each;
  }
  throw_hint(ErrorKind::usage, "use none, selective or full", "--recompute '{}' is not known", word);
}

// Time of a step by op.
struct StepProfile {
  double seconds = 0;
  std::vector<bench::OpProfile::Row> rows;
  runtime::PeakRates most;

  void print(const Output& output) const;
  Json json() const;
};

void StepProfile::print(const Output& output) const {
  output.print(fmt::format("\n{:<32}{:<20}{:>7}{:>10}{:>8}{:>10}{:>8}{:>10}{:>10}\n", "op", "MxNxK", "calls", "ms",
                           "of step", "GFLOP/s", "GB/s", "floor ms", "of floor"));
  double inside = 0;
  for (const bench::OpProfile::Row& row : rows) {
    inside += row.seconds;
    const double floor = row.floor(most);
    output.print(fmt::format("{:<32}{:<20}{:>7}{:>10.2f}{:>8.1f}{:>10}{:>8.1f}{:>10.2f}{:>10}\n", row.op, row.shape,
                             row.calls, 1e3 * row.seconds, 100 * row.seconds / seconds,
                             row.flops > 0 ? fmt::format("{:.1f}", row.flops / row.seconds / 1e9) : std::string(),
                             row.bytes / row.seconds / 1e9, 1e3 * floor,
                             floor > row.seconds ? "cache" : fmt::format("{:.0f} %", 100 * floor / row.seconds)));
  }
  output.print(
      fmt::format("{:<59}{:>10.2f}{:>8.1f}\n", "outside ops", 1e3 * (seconds - inside), 100 * (1 - inside / seconds)));
  output.print(fmt::format("products {:.0f} GFLOP/s in bf16, {:.0f} in fp32, memory {:.1f} GB/s; a step of {:.3f} s\n",
                           most.bf16_flops / 1e9, most.f32_flops / 1e9, most.bytes / 1e9, seconds));
}

Json StepProfile::json() const {
  Json list = Json::array();
  for (const bench::OpProfile::Row& row : rows) {
    list.push_back({{"op", row.op},
                    {"shape", row.shape},
                    {"calls", row.calls},
                    {"seconds", row.seconds},
                    {"flops", row.flops},
                    {"bytes", row.bytes},
                    {"floor_seconds", row.floor(most)}});
  }
  return {{"seconds", seconds},
          {"rows", list},
          {"bf16_gflops", most.bf16_flops / 1e9},
          {"f32_gflops", most.f32_flops / 1e9},
          {"gb_s", most.bytes / 1e9}};
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

// Timed steps.
struct Timed {
  std::vector<double> seconds;
  std::vector<double> losses;
  double first_loss = 0;  // before the first update
  train::StepResult last;

  double mean() const {
    double sum = 0;
    for (const double s : seconds) sum += s;
    return sum / static_cast<double>(seconds.size());
  }
  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

class BenchTrain : public Command {
 public:
  const char* name() const override { return "train"; }
  const char* summary() const override { return "measure training with random weights and tokens: tokens per second"; }
  bool reports() const override { return true; }
  void declare(Arguments& a) override {
    a.positional("model", model_, "a folder with a config.json (weights are not needed), or a model");
    a.option("device", device_, "cpu (default), cuda:N, hip:N, or a simulated GPU (sim32, sim64)");
    a.option("threads", threads_, "CPU threads (default: all)");
    a.option("sequence", sequence_, "tokens per packed sequence");
    a.option("document", document_, "tokens per document in the sequence (default: the whole sequence)");
    a.option("global", global_, "sequences per step (global batch)");
    a.option("micro", micro_, "sequences per micro-batch (default: as many as fit in memory)");
    a.option("rank", rank_,
             "train LoRA adapters of this rank on all linear layers of the frozen model (default: full training)");
    a.option("dtype", dtype_, "data type of the computation: bf16 (default) or fp32");
    a.option("weights", weights_, bench::random_weights_help);
    a.option("state", state_, "optimizer moments: bf16 or fp32 (default)");
    a.option("master", master_, "master weights: bf16 or fp32 (default)");
    a.option("recompute", recompute_, "activation checkpointing: none (default), selective or full");
    a.flag("bitwise", bitwise_, "sum gradients as with determinism: bitwise");
    a.option("warmup", warmup_, "untimed warm-up steps");
    a.option("steps", steps_, "largest number of timed steps");
    a.option("seconds", seconds_, "stop timing after so many seconds, but not before two steps");
    a.flag("profile", profile_, "run one more step and print the time of every op, next to its lower bound");
    a.example("ingot bench train recipes/models/llama-3.1-8b --device cuda:0 --rank 16 --sequence 4096");
  }

  int run(const Output& output) override;

 private:
  runs::RunPlan plan(const runtime::Runtime& runtime, const spec::ModelSpec& model) const;

  std::string model_, device_ = "cpu", dtype_ = "bf16", weights_ = "auto", state_ = "fp32", master_ = "fp32",
                      recompute_ = "none";
  bool bitwise_ = false, profile_ = false;
  std::optional<int64_t> threads_, document_, micro_, rank_;
  int64_t sequence_ = 1024, global_ = 1, warmup_ = 3, steps_ = 20;
  double seconds_ = 60;
};

// The memory and FLOPs of the job, planned as `ingot pretrain` does.
runs::RunPlan BenchTrain::plan(const runtime::Runtime& runtime, const spec::ModelSpec& model) const {
  const int64_t document = document_.value_or(sequence_);
  if (sequence_ < 2 || document < 2 || document > sequence_ || global_ < 1 || warmup_ < 1 || steps_ < 2) {
    throw_error(ErrorKind::usage,
                "--sequence {} --document {} --global {} --warmup {} --steps {}: must be at least 2, 2 (and at most "
                "the sequence), 1, 1 and 2",
                sequence_, document, global_, warmup_, steps_);
  }
  constexpr int64_t most = int64_t{1} << 31;
  if (sequence_ > data::max_sequence_length || std::max({global_, warmup_, steps_}) > most) {
    throw_error(ErrorKind::usage,
                "--sequence {} --global {} --warmup {} --steps {}: must be at most {}, and {} each for the others",
                sequence_, global_, warmup_, steps_, data::max_sequence_length, most);
  }
  train::Recipe recipe;
  recipe.precision = type_of<train::Precision>("dtype", dtype_);
  recipe.optimizer.state_dtype = type_of<train::StateType>("state", state_);
  recipe.optimizer.master = type_of<train::MasterType>("master", master_);
  recipe.recompute = recompute_of(recompute_);
  if (bitwise_) recipe.determinism = train::Determinism::bitwise;
  if (rank_) recipe.adapter = train::AdapterRecipe{.rank = {rank_}};
  recipe.data.sequence_length = sequence_;
  recipe.batch.global = global_;
  recipe.batch.micro.value = micro_;
  recipe.steps = warmup_ + steps_;
  recipe.weights = weights_;
  data::DatasetStatistics data;
  data.num_sequences = 1;
  data.num_loss_tokens = sequence_;
  for (int64_t begin = 0; begin < sequence_; begin += document) {
    const auto length = static_cast<double>(std::min(document, sequence_ - begin));
    data.squared_lengths += length * length;
  }
  return runs::plan_run(
      recipe, model, data, 0,
      {bench::random_model_bytes(model, bench::random_weight_storage(weights_, train::dtype_of(recipe.precision))), 0},
      runtime.device->memory_available(), runtime);
}

int BenchTrain::run(const Output& output) {
  exit_on_interrupt();
  if (!(seconds_ > 0)) throw_error(ErrorKind::usage, "--seconds {}; must be above 0", seconds_);
  const DType activation = train::dtype_of(type_of<train::Precision>("dtype", dtype_));
  const bool decoded = bench::random_weight_storage(weights_, activation).decoded(activation);
  if (decoded && !rank_) {
    throw_hint(ErrorKind::usage, "add --rank R to train LoRA adapters on the frozen weights",
               "--weights {}: weights of this type cannot be trained", weights_);
  }
  runtime::Runtime runtime = runtime::open_runtime(device_, threads_);
  const spec::ModelSpec model = bench::bench_spec(model_);
  const runs::RunPlan planned = plan(runtime, model);
  const int64_t document = document_.value_or(sequence_);
  const bench::TrainJob job{planned.lora, planned.step, planned.optimizer_types, document, 1, weights_};

  const bench::SmallCheck check = bench::check_small(runtime, model, job);
  if (!check.agrees()) {
    throw_error(ErrorKind::internal,
                "{} disagrees with the CPU: losses and gradient norms of a small model are {:.6g}, on the CPU {:.6g}; "
                "allowed relative difference {:.2g}",
                runtime.device->name(), fmt::join(check.device, ", "), fmt::join(check.cpu, ", "), check.allowed);
  }

  const bool on_cpu = runtime.device->kind() == DeviceKind::cpu;
  DeviceRates rates = on_cpu ? DeviceRates{} : runtime::gpu_training_rates(runtime, job.step.activation);
  if (on_cpu) {
    Arena scratch(*runtime.device, size_t{256} << 20, "scratch");
    ops::Context context{*runtime.device, runtime.registry, scratch, runtime.threads.get()};
    rates = runtime::cpu_rates(runtime::rate_cache(runtime::rates_key(runtime)), context, job.step.activation).rates;
  }
  std::optional<StepProfile> profile;
  if (profile_) profile.emplace().most = runtime::find_peak_rates(runtime);
  bench::TrainBench bench(runtime, model, job);
  Timed timed;
  for (int64_t step = 0; step < warmup_; ++step) {
    const train::StepResult result = bench.run(global_);
    if (step == 0) timed.first_loss = result.loss;
  }
  const double begin = steady_seconds();
  for (int64_t step = 0; step < steps_ && (step < 2 || steady_seconds() - begin < seconds_); ++step) {
    const double from = steady_seconds();
    timed.last = bench.run(global_);
    timed.seconds.push_back(steady_seconds() - from);
    timed.losses.push_back(timed.last.loss);
    if (timed.last.skipped || !std::isfinite(timed.last.loss)) {
      throw_error(ErrorKind::internal, "timed step {}: loss {} or gradient norm {} is not finite", step + 1,
                  timed.last.loss, timed.last.grad_norm);
    }
  }

  const auto tokens = static_cast<double>(timed.last.tokens);
  const spec::AttentionSquares squares{tokens, timed.last.squared_lengths};
  if (profile) {
    const double attention = spec::attention_flops(model, squares, spec::AttentionCount::causal);
    bench::OpProfile ops(*runtime.device, attention / tokens / static_cast<double>(model.num_layers()));
    bench.step().context().watch = &ops;
    const double from = steady_seconds();
    bench.run(global_);
    profile->seconds = steady_seconds() - from;
    bench.step().context().watch = nullptr;
    profile->rows = ops.rows();
  }
  const spec::AttentionSquares whole{tokens, tokens * static_cast<double>(sequence_)};
  const std::vector<spec::LoraParam> adapters =
      job.lora ? spec::lora_parameters(model, *job.lora) : std::vector<spec::LoraParam>{};
  const auto flops = [&](spec::AttentionSquares s, spec::AttentionCount count) {
    return job.lora ? spec::lora_training_flops(model, adapters, s, count) : spec::training_flops(model, s, count);
  };
  train::StepWork work;
  work.useful = work.executed = flops(squares, spec::AttentionCount::causal);
  work.full_square = flops(whole, spec::AttentionCount::full_square);
  if (job.step.recompute == spec::Recompute::full) {
    work.executed += spec::recompute_flops(model, squares, spec::AttentionCount::causal);
  }
  const double seconds = timed.mean();
  const auto [shares, warning] = train::Utilisation(rates).of(work, seconds);
  const uint64_t memory = on_cpu || runtime.device->kind() == DeviceKind::sim
                              ? memory_use().peak
                              : runtime.device->memory_bytes() - runtime.device->memory_available();
  output.print(fmt::format("{}, {} on {} ({})\n", model_,
                           !job.lora ? "full training"
                           : decoded ? "LoRA on a base in " + weights_
                                     : "LoRA",
                           runtime.device->name(), runtime.model));
  output.print(fmt::format("  {:.1f} tokens/s, {:.3f} s a step of {} tokens ({} timed), {:.2f} TFLOP/s{}\n",
                           tokens / seconds, seconds, timed.last.tokens, timed.seconds.size(),
                           work.useful / seconds / 1e12,
                           shares.mfu ? fmt::format(", MFU {:.1f} % (causal)", 100 * *shares.mfu) : std::string()));
  if (!rates.date.empty()) {
    output.print(fmt::format("  of a peak of {:.3f} TFLOP/s, measured {}\n", rates.peak / 1e12, rates.date));
  }
  output.print(fmt::format("  memory {}; moments {}, master weights {}\n", format_bytes(memory), state_, master_));
  if (!warning.empty()) output.print(fmt::format("  {}\n", warning));
  if (profile) profile->print(output);
  output.print_json(json_line({{"job", "train"},
                               {"model", model_},
                               {"family", model.family},
                               {"vocab", model.vocab},
                               {"parameters", spec::num_parameters(model)},
                               {"trained", planned.trainable_parameters},
                               {"rank", rank_ ? Json(*rank_) : Json()},
                               {"device", runtime.device->name()},
                               {"arch", runtime.device->arch()},
                               {"device_model", runtime.model},
                               {"dtype", dtype_},
                               {"weights", weights_ == "auto" ? dtype_ : weights_},
                               {"state", state_},
                               {"master", master_},
                               {"recompute", recompute_},
                               {"determinism", bitwise_ ? "bitwise" : "fast"},
                               {"sequence", sequence_},
                               {"document", document},
                               {"global", global_},
                               {"micro", job.step.micro},
                               {"tokens_per_s", tokens / seconds},
                               {"step_seconds", seconds},
                               {"step_seconds_median", timed.median()},
                               {"steps", timed.seconds},
                               {"tflops", work.useful / seconds / 1e12},
                               {"mfu", or_null(shares.mfu)},
                               {"mfu_full_square", or_null(shares.mfu_full_square)},
                               {"hfu", or_null(shares.hfu)},
                               {"gemm_share", or_null(shares.gemm)},
                               {"peak_tflops", rates.peak / 1e12},
                               {"gemm_tflops", rates.gemm / 1e12},
                               {"rates_measured", rates.date.empty() ? Json() : Json(rates.date)},
                               {"memory_bytes", memory},
                               {"planned_bytes", planned.memory.total()},
                               {"first_loss", timed.first_loss},
                               {"losses", timed.losses},
                               {"profile", profile ? profile->json() : Json()},
                               {"check", {{"cpu", check.cpu}, {"device", check.device}, {"allowed", check.allowed}}}}));
  return 0;
}

}  // namespace

std::unique_ptr<Command> bench_train_command() { return std::make_unique<BenchTrain>(); }

}  // namespace ingot::cli
