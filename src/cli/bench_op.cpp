// ingot bench op: compares every op with its double-precision reference, then measures its speed.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "bench/op.h"
#include "cli/command.h"
#include "cli/interrupt.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

int list_ops(const Output& output) {
  for (const std::string& op : bench::op_names()) output.print(op + "\n");
  output.print_json(json_line(bench::op_names()));
  return 0;
}

Json json(const std::vector<bench::OpVerdict>& verdicts) {
  Json list = Json::array();
  for (const bench::OpVerdict& each : verdicts) {
    list.push_back({{"op", each.op}, {"case", each.name}, {"text", each.text}});
  }
  return list;
}

class BenchOp : public Command {
 public:
  const char* name() const override { return "op"; }
  const char* summary() const override { return "compare every op with its reference, then time it"; }
  bool reports() const override { return true; }
  void declare(Arguments& arguments) override {
    arguments.positional("ops", options_.ops, "names of ops (default: all)", false);
    arguments.option("device", options_.device, "cpu (default), cuda:N, hip:N, or a simulated GPU (sim32, sim64)");
    arguments.option("threads", options_.threads, "CPU threads (default: all)");
    arguments.option("seconds", options_.seconds, "seconds of timing per case");
    arguments.flag("check", options_.check, "only compare; do not stop at a wrong result, and report all of them");
    arguments.flag("small", options_.small, "time the small cases that are compared, not those of the device's size");
    arguments.flag("host-time", host_time_, "time the host's part of a call: argument checks and dispatch");
    arguments.flag("list", list_, "print the names of ops and stop");
    arguments.example("ingot bench op matmul attention");
  }

  int run(const Output& output) override {
    if (list_) return list_ops(output);
    exit_on_interrupt();
    bench::OpBench bench(options_);
    const bench::OpVerdicts verdicts = bench.verify([&](const bench::OpVerdict& each) {
      if (options_.check) output.print(fmt::format("{}  {}\n", each.failed ? "FAILED" : "declined", each.text));
    });
    if (options_.check) return print(bench, verdicts, output);
    if (host_time_) {
      time_host(bench, output);
    } else {
      time(bench, output);
    }
    return 0;
  }

 private:
  // Returns the exit code.
  static int print(const bench::OpBench& bench, const bench::OpVerdicts& verdicts, const Output& output) {
    const Device& device = *bench.runtime().device;
    output.print(fmt::format("{} cases passed, {} declined, {} failed on {} ({})\n", verdicts.passed,
                             verdicts.declined.size(), verdicts.failed.size(), device.name(), device.arch()));
    output.print_json(json_line({{"device", device.name()},
                                 {"arch", device.arch()},
                                 {"ops", verdicts.ops},
                                 {"passed", verdicts.passed},
                                 {"declined", json(verdicts.declined)},
                                 {"failed", json(verdicts.failed)}}));
    return verdicts.failed.empty() ? 0 : exit_code(ErrorKind::internal);
  }

  static void time(bench::OpBench& bench, const Output& output) {
    const runtime::Runtime& runtime = bench.runtime();
    const runtime::PeakRates most = runtime::find_peak_rates(runtime);
    const bool on_cpu = runtime.device->kind() == DeviceKind::cpu;
    output.print(fmt::format("{:<32}{:<34}{:>11}{:>11}{:>9}\n", "op", "case", "GFLOP/s", "GB/s",
                             on_cpu ? "of peak" : "reached"));
    Json rows = Json::array();
    bench.time(most, [&](const bench::OpTime& each) {
      output.print(fmt::format("{:<32}{:<34}{:>11.1f}{:>11.1f}{:>9}\n", each.op, each.name, each.flops / 1e9,
                               each.bytes / 1e9,
                               each.exceeds_bandwidth ? "cache"
                               : each.share           ? fmt::format("{:.0f}%", 100 * *each.share)
                                                      : std::string("-")));
      rows.push_back({{"op", each.op},
                      {"case", each.name},
                      {"seconds", each.seconds},
                      {"gflops", each.flops / 1e9},
                      {"gb_s", each.bytes / 1e9},
                      {"share", each.share ? Json(*each.share) : Json()}});
    });
    Json result = {{"device", runtime.device->name()}, {"arch", runtime.device->arch()}, {"model", runtime.model}};
    if (on_cpu) {
      result["peak_bf16_gflops"] = most.bf16_flops / 1e9;
      result["peak_f32_gflops"] = most.f32_flops / 1e9;
      result["read_gb_s"] = most.bytes / 1e9;
    } else {
      result["gemm_bf16_gflops"] = most.bf16_flops / 1e9;
      result["copy_gb_s"] = most.bytes / 1e9;
      result["peak_bf16_gflops"] = most.datasheet_bf16_flops > 0 ? Json(most.datasheet_bf16_flops / 1e9) : Json();
    }
    result["rows"] = rows;
    output.print_json(json_line(result));
  }

  static void time_host(bench::OpBench& bench, const Output& output) {
    const std::vector<bench::OpHostTime> times = bench.time_host();
    output.print(fmt::format("{:<32}{:>7}{:>11}{:>11}{:>11}\n", "op", "cases", "min ns", "mean ns", "max ns"));
    Json rows = Json::array();
    for (const bench::OpHostTime& each : times) {
      output.print(fmt::format("{:<32}{:>7}{:>11.0f}{:>11.0f}{:>11.0f}\n", each.op, each.cases, each.min_ns,
                               each.mean_ns, each.max_ns));
      rows.push_back({{"op", each.op},
                      {"cases", each.cases},
                      {"min_ns", each.min_ns},
                      {"mean_ns", each.mean_ns},
                      {"max_ns", each.max_ns}});
    }
    output.print_json(json_line({{"device", bench.runtime().device->name()}, {"rows", rows}}));
  }

  bench::OpOptions options_;
  bool host_time_ = false, list_ = false;
};

}  // namespace

std::unique_ptr<Command> bench_op_command() { return std::make_unique<BenchOp>(); }

}  // namespace ingot::cli
