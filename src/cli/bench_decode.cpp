// ingot bench decode: serving latency in milliseconds per token, with random weights.
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "bench/decode.h"
#include "cli/bench_profile.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

Json json(const std::optional<bench::Alternation>& found) {
  if (!found) return nullptr;
  return {{"one_ms", 1e3 * found->same},
          {"alternating_ms", 1e3 * found->alternating},
          {"difference_percent", found->percent()}};
}

class BenchDecode : public Command {
 public:
  const char* name() const override { return "decode"; }
  const char* summary() const override { return "measure serving with random weights: milliseconds per token"; }
  bool reports() const override { return true; }
  void declare(Arguments& a) override {
    a.positional("model", options_.model, "a folder with a config.json (weights are not needed), or a model");
    a.option("device", options_.device, "cpu (default), cuda:N, hip:N, or a simulated GPU (sim32, sim64)");
    a.option("threads", options_.threads, "CPU threads (default: all)");
    a.option("dtype", options_.dtype, dtype_help);
    a.option("weights", options_.weights, bench::random_weights_help);
    a.option("compute", options_.compute, "auto (default: as --dtype), or int8: activations rounded to 8 bits");
    a.option("batch", options_.batch, "concurrent requests");
    a.option("prompt", options_.prompt, "tokens per prompt");
    a.option("tokens", options_.tokens,
             "tokens per answer; all but the first, which belongs to the prefill, are timed");
    a.option("adapters", options_.adapters, "number of random LoRA adapters, assigned to the requests in turn");
    a.option("rank", options_.rank, "rank of the adapters");
    a.option("targets", options_.targets,
             "linear layers that are adapted, as adapter.targets in recipes; may be given several times (default: "
             "all-linear)");
    a.flag("alternate", options_.alternate,
           "also time steps that alternate between two adapters; needs --batch 1 --adapters 2");
    a.flag("any-bits", any_bits_, "allow gemms whose results depend on the number of rows (not row-invariant)");
    a.flag("profile", options_.profile,
           "answer once more and print the mean time of every op in a step, next to its lower bound");
    a.example("ingot bench decode recipes/models/llama-2-13b --device cuda:0 --dtype fp16 --prompt 128 --tokens 64");
  }

  int run(const Output& output) override {
    exit_on_interrupt();
    options_.row_invariant = !any_bits_;
    const bench::DecodeReport report = bench::bench_decode(options_);
    const std::string& weights = options_.weights == "auto" ? options_.dtype : options_.weights;
    const auto batch = static_cast<double>(options_.batch);
    const double rate = report.read_bytes / report.seconds;  // bytes/s
    output.print(fmt::format("{}, {}, {} weights, batch {} on {} ({})\n", options_.model, options_.dtype, weights,
                             options_.batch, report.device, report.device_model));
    output.print(fmt::format(
        "  {:.3f} ms a token, {:.1f} tokens/s; prompts of {} tokens took {:.3f} s; {:.1f} GB/s{}\n",
        1e3 * report.seconds, batch / report.seconds, options_.prompt, report.prompt_seconds, rate / 1e9,
        report.copied ? fmt::format(", {:.1f} % of what a copy moves", 100 * rate / *report.copied) : std::string()));
    output.print(fmt::format("  {:.1f} us of a step are the engine's own\n", report.outside_us));
    if (const auto& alternation = report.alternation) {
      output.print(fmt::format("  {:.3f} ms a step with one adapter, {:.3f} alternating two: {:+.2f} %\n",
                               1e3 * alternation->same, 1e3 * alternation->alternating, alternation->percent()));
    }
    if (report.profile) print_profile(*report.profile, output);
    const bench::SmallCheck& check = report.check;
    output.print_json(
        json_line({{"job", "decode"},
                   {"model", options_.model},
                   {"family", report.model.family},
                   {"parameters", spec::num_parameters(report.model)},
                   {"device", report.device},
                   {"arch", report.arch},
                   {"device_model", report.device_model},
                   {"dtype", options_.dtype},
                   {"weights", weights},
                   {"compute", options_.compute},
                   {"batch", options_.batch},
                   {"prompt", options_.prompt},
                   {"tokens", options_.tokens},
                   {"ms_per_token", 1e3 * report.seconds},
                   {"adapters", options_.adapters},
                   {"rank", options_.adapters > 0 ? Json(options_.rank) : Json()},
                   {"same_bits", options_.row_invariant},
                   {"outside_us", report.outside_us},
                   {"ms_fastest", 1e3 * report.fastest},
                   {"tokens_per_s", batch / report.seconds},
                   {"prompt_seconds", report.prompt_seconds},
                   {"alternate", json(report.alternation)},
                   {"profile", report.profile ? profile_json(*report.profile) : Json()},
                   {"read_bytes", report.read_bytes},
                   {"adapter_bytes", report.adapter_bytes},
                   {"gb_s", rate / 1e9},
                   {"copy_gb_s", report.copied ? Json(*report.copied / 1e9) : Json()},
                   {"copy_share", report.copied ? Json(rate / *report.copied) : Json()},
                   {"floor_ms", report.copied ? Json(1e3 * report.read_bytes / *report.copied) : Json()},
                   {"memory_bytes", report.memory_bytes},
                   {"check", {{"cpu", check.cpu}, {"device", check.device}, {"allowed", check.allowed}}}}));
    return 0;
  }

 private:
  bench::DecodeOptions options_;
  bool any_bits_ = false;
};

}  // namespace

std::unique_ptr<Command> bench_decode_command() { return std::make_unique<BenchDecode>(); }

}  // namespace ingot::cli
