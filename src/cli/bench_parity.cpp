// ingot bench parity: compares a tiny model of every family on a device and on the CPU.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "bench/parity.h"
#include "cli/command.h"
#include "cli/interrupt.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

class BenchParity : public Command {
 public:
  const char* name() const override { return "parity"; }
  const char* summary() const override { return "compare tiny models of every family on a device with the CPU"; }
  bool reports() const override { return true; }
  void declare(Arguments& arguments) override {
    arguments.positional("families", options_.shapes, "names of shapes, see --list (default: all)", false);
    arguments.option("device", options_.device, "cuda:N, hip:N, or a simulated GPU: sim32, sim64");
    arguments.option("steps", options_.steps, "training steps (default: 10)");
    arguments.flag("serving", options_.serving,
                   "compare serving instead of training: text, log-probabilities, adapters, JSON, prefix cache");
    arguments.option("others", options_.others, "with --serving: additional requests in the same batch (default: 64)");
    arguments.flag("list", list_, "print the names of the shapes and stop");
    arguments.example("ingot bench parity --device cuda:0");
    arguments.example("ingot bench parity llama gemma2 --serving --device cuda:0");
  }

  int run(const Output& output) override {
    if (list_) {
      for (const std::string& shape : bench::parity_shapes()) output.print(shape + "\n");
      output.print_json(json_line(bench::parity_shapes()));
      return 0;
    }
    exit_on_interrupt();
    Json rows = Json::array();
    const auto training = [&](const std::string& shape, const bench::TrainingAgreement& one) {
      output.print(fmt::format("{:<22}{:<10}{:>8.3f} of what is allowed: {}, off by {:.3g} of {:.3g}{}\n", shape,
                               one.job, one.share, one.worst, one.worst_error, one.worst_size,
                               one.agrees() ? "" : "  DISAGREES"));
      rows.push_back({{"shape", shape},
                      {"job", one.job},
                      {"agrees", one.agrees()},
                      {"share_of_allowed", one.share},
                      {"worst", one.worst},
                      {"worst_error", one.worst_error},
                      {"worst_size", one.worst_size},
                      {"losses", one.losses},
                      {"cpu_losses", one.cpu_losses}});
    };
    const auto serving = [&](const std::string& shape, const bench::ServingAgreement& one) {
      output.print(fmt::format(
          "{:<22}{:<18}{:>8.3f} of what is allowed: {}, off by {:.3g}; {} tokens, {} texts parted{}\n", shape, one.job,
          one.share(), one.worst, one.error, one.tokens, one.parted, one.agrees() ? "" : "  DISAGREES"));
      for (const std::string& wrong : one.wrong) output.print(fmt::format("  {}\n", wrong));
      rows.push_back({{"shape", shape},
                      {"job", one.job},
                      {"agrees", one.agrees()},
                      {"share_of_allowed", one.share()},
                      {"worst", one.worst},
                      {"worst_error", one.error},
                      {"tokens", one.tokens},
                      {"parted", one.parted},
                      {"wrong", one.wrong}});
    };
    const bench::ParityReport report = bench::bench_parity(options_, {training, serving});
    output.print_json(json_line({{"device", report.device},
                                 {"arch", report.arch},
                                 {"device_model", report.device_model},
                                 {"steps", options_.serving ? Json() : Json(report.steps)},
                                 {"others", options_.serving ? Json(report.others) : Json()},
                                 {"agrees", report.agrees},
                                 {"rows", rows}}));
    return report.agrees ? 0 : exit_code(ErrorKind::internal);
  }

 private:
  bench::ParityOptions options_;
  bool list_ = false;
};

}  // namespace

std::unique_ptr<Command> bench_parity_command() { return std::make_unique<BenchParity>(); }

}  // namespace ingot::cli
