// ingot bench train: tokens per second of a training job, with random weights and tokens.
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/strings.h"
#include "bench/train.h"
#include "cli/bench_profile.h"
#include "cli/command.h"
#include "cli/interrupt.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

class BenchTrain : public Command {
 public:
  const char* name() const override { return "train"; }
  const char* summary() const override { return "measure training with random weights and tokens: tokens per second"; }
  bool reports() const override { return true; }
  void declare(Arguments& a) override {
    a.positional("model", options_.model, "a folder with a config.json (weights are not needed), or a model");
    a.option("device", options_.device, "cpu (default), cuda:N, hip:N, or a simulated GPU (sim32, sim64)");
    a.option("threads", options_.threads, "CPU threads (default: all)");
    a.option("sequence", options_.sequence, "tokens per packed sequence");
    a.option("document", options_.document, "tokens per document in the sequence (default: the whole sequence)");
    a.option("global", options_.global, "sequences per step (global batch)");
    a.option("micro", options_.micro, "sequences per micro-batch (default: as many as fit in memory)");
    a.option("rank", options_.rank,
             "train LoRA adapters of this rank on all linear layers of the frozen model (default: full training)");
    a.option("dtype", options_.dtype, "data type of the computation: bf16 (default), fp32 or fp8 (products alone)");
    a.option("weights", options_.weights, bench::random_weights_help);
    a.option("optimizer", options_.optimizer,
             "optimizer.name of recipes, with its default settings: adamw (default), muon, sgd or lion");
    a.option("state-dtype,--state", options_.state_dtype,
             "optimizer.state_dtype of recipes, the type of the optimizer's states: fp32 (default), bf16 or int8");
    a.option("master", options_.master, "master weights: bf16 or fp32 (default)");
    a.option("recompute", options_.recompute, "activation checkpointing: none (default), selective or full");
    a.flag("bitwise", options_.bitwise, "sum gradients as with determinism: bitwise");
    a.option("warmup", options_.warmup, "untimed warm-up steps");
    a.option("steps", options_.steps, "largest number of timed steps");
    a.option("seconds", options_.seconds, "stop timing after so many seconds, but not before two steps");
    a.flag("profile", options_.profile, "run one more step and print the time of every op, next to its lower bound");
    a.example("ingot bench train recipes/models/llama-3.1-8b --device cuda:0 --rank 16 --sequence 4096");
  }

  int run(const Output& output) override;

 private:
  bench::TrainOptions options_;
};

int BenchTrain::run(const Output& output) {
  exit_on_interrupt();
  const bench::TrainReport report = bench::bench_train(options_);
  const std::optional<bench::StepProfile>& profile = report.profile;
  const bench::SmallCheck& check = report.check;
  const auto tokens = static_cast<double>(report.tokens);
  const double seconds = report.mean_seconds();
  output.print(fmt::format("{}, {} on {} ({})\n", options_.model,
                           !report.plan.lora ? "full training"
                           : report.decoded  ? "LoRA on a base in " + report.weights
                                             : "LoRA",
                           report.device, report.device_model));
  output.print(fmt::format(
      "  {:.1f} tokens/s, {:.3f} s a step of {} tokens ({} timed), {:.2f} TFLOP/s{}\n", tokens / seconds, seconds,
      report.tokens, report.seconds.size(), report.work.useful / seconds / 1e12,
      report.shares.mfu ? fmt::format(", MFU {:.1f} % (causal)", 100 * *report.shares.mfu) : std::string()));
  if (!report.rates.date.empty()) {
    output.print(
        fmt::format("  of a peak of {:.3f} TFLOP/s, measured {}\n", report.rates.peak / 1e12, report.rates.date));
  }
  const train::OptimizerStateBytes& bytes = report.plan.memory.optimizer_state;
  output.print(fmt::format("  memory {}; {} with {} in {}, master weights {}\n", format_bytes(report.memory_bytes),
                           options_.optimizer, format_bytes(bytes.moments), options_.state_dtype, options_.master));
  if (!report.warning.empty()) output.print(fmt::format("  {}\n", report.warning));
  if (profile) print_profile(*profile, output);
  output.print_json(json_line({{"job", "train"},
                               {"model", options_.model},
                               {"family", report.model.family},
                               {"vocab", report.model.vocab},
                               {"parameters", spec::num_parameters(report.model)},
                               {"trained", report.plan.trainable_parameters},
                               {"rank", options_.rank ? Json(*options_.rank) : Json()},
                               {"device", report.device},
                               {"arch", report.arch},
                               {"device_model", report.device_model},
                               {"dtype", options_.dtype},
                               {"weights", report.weights},
                               {"optimizer", options_.optimizer},
                               {"state", options_.state_dtype},
                               {"state_bytes", bytes.moments},
                               {"update_scratch_bytes", bytes.update},
                               {"master", options_.master},
                               {"recompute", options_.recompute},
                               {"determinism", options_.bitwise ? "bitwise" : "fast"},
                               {"sequence", options_.sequence},
                               {"document", options_.document_tokens()},
                               {"global", options_.global},
                               {"micro", report.plan.step.micro},
                               {"tokens_per_s", tokens / seconds},
                               {"step_seconds", seconds},
                               {"step_seconds_median", report.median_seconds()},
                               {"steps", report.seconds},
                               {"tflops", report.work.useful / seconds / 1e12},
                               {"mfu", or_null(report.shares.mfu)},
                               {"mfu_full_square", or_null(report.shares.mfu_full_square)},
                               {"hfu", or_null(report.shares.hfu)},
                               {"gemm_share", or_null(report.shares.gemm)},
                               {"peak_tflops", report.rates.peak / 1e12},
                               {"gemm_tflops", report.rates.gemm / 1e12},
                               {"rates_measured", report.rates.date.empty() ? Json() : Json(report.rates.date)},
                               {"memory_bytes", report.memory_bytes},
                               {"planned_bytes", report.plan.memory.total()},
                               {"first_loss", report.first_loss},
                               {"losses", report.losses},
                               {"profile", profile ? profile_json(*profile) : Json()},
                               {"check", {{"cpu", check.cpu}, {"device", check.device}, {"allowed", check.allowed}}}}));
  return 0;
}

}  // namespace

std::unique_ptr<Command> bench_train_command() { return std::make_unique<BenchTrain>(); }

}  // namespace ingot::cli
