// ingot bench op: compares every op with its double-precision reference, then measures its speed.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "ops/testing/op_table.h"
#include "runtime/device_rates.h"
#include "runtime/runtime.h"
#include "tensor/arena.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

class BenchOp : public Command {
 public:
  const char* name() const override { return "op"; }
  const char* summary() const override { return "compare every op with its reference, then time it"; }
  bool reports() const override { return true; }
  void declare(Arguments& arguments) override {
    arguments.positional("ops", ops_, "names of ops (default: all)", false);
    arguments.option("device", device_, "cpu (default), cuda:N, hip:N, or a simulated GPU (sim32, sim64)");
    arguments.option("threads", threads_, "CPU threads (default: all)");
    arguments.option("seconds", seconds_, "seconds of timing per case");
    arguments.flag("check", check_, "only compare; do not stop at a wrong result, and report all of them");
    arguments.flag("host-time", host_time_, "time the host's part of a call: argument checks and dispatch");
    arguments.flag("list", list_, "print the names of ops and stop");
    arguments.example("ingot bench op matmul attention");
  }

  int run(const Output& output) override {
    if (!(seconds_ > 0) || seconds_ > 60)
      throw_error(ErrorKind::usage, "--seconds {}; must be above 0 and at most 60", seconds_);
    if (list_) return list(output);
    exit_on_interrupt();
    runtime::Runtime runtime = runtime::open_runtime(device_, threads_);
    check_names();
    Arena scratch;  // cases allocate their own
    ops::Context context{*runtime.device, runtime.registry, scratch, runtime.threads.get()};
    const Json verdicts = verify(context, output);
    if (check_) {
      output.print_json(json_line(verdicts));
      return verdicts["failed"].empty() ? 0 : exit_code(ErrorKind::internal);
    }
    if (host_time_) {
      time_host(context, output);
    } else {
      time(context, runtime, output);
    }
    return 0;
  }

 private:
  static int list(const Output& output) {
    Json names = Json::array();
    for (const ops::testing::OpCase& each : ops::testing::op_cases()) {
      if (std::find(names.begin(), names.end(), each.op) != names.end()) continue;
      names.push_back(each.op);
      output.print(each.op + "\n");
    }
    output.print_json(json_line(names));
    return 0;
  }

  bool wanted(const std::string& op) const {
    return ops_.empty() || std::find(ops_.begin(), ops_.end(), op) != ops_.end();
  }

  void check_names() const {
    for (const std::string& op : ops_) {
      const auto& all = ops::testing::op_cases();
      if (std::any_of(all.begin(), all.end(), [&](const ops::testing::OpCase& each) { return each.op == op; }))
        continue;
      throw_hint(ErrorKind::usage, "docs/support-matrix.md lists the ops", "there is no op '{}'", op);
    }
  }

  // A kernel error on a GPU fails its case; later calls on that device fail too.
  ops::testing::Verdict compare(ops::Context& context, const ops::testing::OpCase& each) const {
    if (!check_) return ops::testing::compare(context, each);
    try {
      return ops::testing::compare(context, each);
    } catch (const Error& error) {
      return {ops::testing::Outcome::failed, fmt::format("{} {}: {}", each.op, each.name, error.message())};
    }
  }

  // Wrong results are not timed: without --check the first one is an error.
  Json verify(ops::Context& context, const Output& output) const {
    Json failed = Json::array();
    Json declined = Json::array();
    int64_t passed = 0;
    std::map<std::string, bool> right;  // by op, of ops that have run
    for (const ops::testing::OpCase& each : ops::testing::op_cases()) {
      if (each.timing_only || !wanted(each.op)) continue;
      const ops::testing::Verdict verdict = compare(context, each);
      const bool wrong = verdict.outcome == ops::testing::Outcome::failed;
      if (wrong && !check_) throw_error(ErrorKind::internal, "{}, {}: {}", each.op, each.name, verdict.text);
      if (verdict.outcome != ops::testing::Outcome::declined) {
        bool& all = right.try_emplace(each.op, true).first->second;
        all = all && !wrong;
      }
      if (verdict.outcome == ops::testing::Outcome::passed) {
        ++passed;
        continue;
      }
      (wrong ? failed : declined).push_back({{"op", each.op}, {"case", each.name}, {"text", verdict.text}});
      if (check_) output.print(fmt::format("{}  {}\n", wrong ? "FAILED" : "declined", verdict.text));
    }
    if (check_) {
      output.print(fmt::format("{} cases passed, {} declined, {} failed on {} ({})\n", passed, declined.size(),
                               failed.size(), context.device.name(), context.device.arch()));
    }
    Json ops = Json::array();
    for (const auto& [op, all] : right) {
      if (all) ops.push_back(op);
    }
    return {{"device", context.device.name()},
            {"arch", context.device.arch()},
            {"ops", ops},  // true if all cases that ran are correct
            {"passed", passed},
            {"declined", declined},
            {"failed", failed}};
  }

  // Whether a case is timed on a kind of device: on a CPU cases of CPU size, on a GPU large ones, and on a simulated
  // GPU, whose times mean nothing, the compared cases.
  static bool timed(const ops::testing::OpCase& each, DeviceKind kind) {
    if (each.flops + each.bytes <= 0) return false;
    if (kind == DeviceKind::sim) return !each.timing_only;
    return each.timing_only && each.large == (kind != DeviceKind::cpu);
  }

  void time(ops::Context& context, const runtime::Runtime& runtime, const Output& output) const {
    const runtime::PeakRates most = runtime::find_peak_rates(runtime);
    const bool on_cpu = runtime.device->kind() == DeviceKind::cpu;
    output.print(fmt::format("{:<32}{:<34}{:>11}{:>11}{:>9}\n", "op", "case", "GFLOP/s", "GB/s",
                             on_cpu ? "of peak" : "reached"));
    Json rows = Json::array();
    for (const ops::testing::OpCase& each : ops::testing::op_cases()) {
      if (!wanted(each.op) || !timed(each, runtime.device->kind())) continue;
      const double seconds = ops::testing::time_case(context, each, seconds_);
      const double flops = each.flops / seconds;
      const double bytes = each.bytes / seconds;
      const bool bf16 = !each.operands.empty() && each.operands.back().dtype == DType::bf16;
      const double max_flops = bf16 || !on_cpu ? most.bf16_flops : most.f32_flops;
      // The limiting resource is the one with the larger share. Above the memory bandwidth the operands were in a
      // cache; above the arithmetic peak, the peak was measured while the machine was busy. In both cases the share
      // means nothing.
      const double share = std::max(flops / max_flops, bytes / most.bytes);
      const bool in_cache = bytes > most.bytes;
      const bool known = share <= 1;
      output.print(fmt::format("{:<32}{:<34}{:>11.1f}{:>11.1f}{:>9}\n", each.op, each.name, flops / 1e9, bytes / 1e9,
                               in_cache ? "cache"
                               : known  ? fmt::format("{:.0f}%", 100 * share)
                                        : std::string("-")));
      rows.push_back({{"op", each.op},
                      {"case", each.name},
                      {"seconds", seconds},
                      {"gflops", flops / 1e9},
                      {"gb_s", bytes / 1e9},
                      {"share", known ? Json(share) : Json()}});
    }
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

  // Nanoseconds of processor time per call, over the cases of each op that reach an implementation.
  void time_host(const ops::Context& context, const Output& output) const {
    const ops::Registry registry = context.registry.without_kernels();
    ops::Context host{context.device, registry, context.scratch, context.threads};
    std::map<std::string, std::vector<double>> times;
    for (const ops::testing::OpCase& each : ops::testing::op_cases()) {
      const bool empty =
          std::any_of(each.operands.begin(), each.operands.end(),
                      [](const ops::testing::Operand& operand) { return operand.shape.elements() == 0; });
      if (each.timing_only || empty || !wanted(each.op)) continue;
      try {
        times[each.op].push_back(1e9 * ops::testing::host_seconds(host, each, seconds_ / 100));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::unsupported) throw;  // else no implementation supports the case here
      }
    }
    output.print(fmt::format("{:<32}{:>7}{:>11}{:>11}{:>11}\n", "op", "cases", "min ns", "mean ns", "max ns"));
    Json rows = Json::array();
    for (auto& [op, ns] : times) {
      const auto [least, most] = std::minmax_element(ns.begin(), ns.end());
      const double mean = std::accumulate(ns.begin(), ns.end(), 0.0) / static_cast<double>(ns.size());
      output.print(fmt::format("{:<32}{:>7}{:>11.0f}{:>11.0f}{:>11.0f}\n", op, ns.size(), *least, mean, *most));
      rows.push_back({{"op", op}, {"cases", ns.size()}, {"min_ns", *least}, {"mean_ns", mean}, {"max_ns", *most}});
    }
    output.print_json(json_line({{"device", context.device.name()}, {"rows", rows}}));
  }

  std::vector<std::string> ops_;
  std::string device_ = "cpu";
  std::optional<int64_t> threads_;
  double seconds_ = 0.2;
  bool check_ = false, host_time_ = false, list_ = false;
};

}  // namespace

std::unique_ptr<Command> bench_op_command() { return std::make_unique<BenchOp>(); }

}  // namespace ingot::cli
