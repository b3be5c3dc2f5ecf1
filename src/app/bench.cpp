// ingot bench: verifies, then times.
#include <nlohmann/json.hpp>

#include "app/bench/op_table.h"
#include "app/command.h"
#include "app/interrupt.h"
#include "app/json_text.h"
#include "app/runtime.h"
#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "tensor/arena.h"

namespace ingot::app {

std::unique_ptr<Command> bench_tokenizer_command();  // bench_tokenizer.cpp

namespace {

// measure_peaks multiplies 2048-cubes; cases bring their own scratch.
constexpr size_t measuring_bytes = size_t{256} << 20;

class BenchOp : public Command {
 public:
  const char* name() const override { return "op"; }
  const char* summary() const override { return "time every op, after comparing it with its reference"; }
  bool reports() const override { return true; }
  void declare(Arguments& arguments) override {
    arguments.positional("ops", ops_, "names of ops; all of them without any", false);
    arguments.option("threads", threads_, "CPU threads; all there are without it");
    arguments.option("seconds", seconds_, "of timing for a case");
    arguments.example("ingot bench op matmul attention");
  }

  int run(const Output& output) override {
    if (!(seconds_ > 0) || seconds_ > 60) throw_error(ErrorKind::usage, "--seconds {}; above 0, to 60", seconds_);
    exit_on_interrupt();
    Runtime runtime = open_runtime("cpu", threads_);
    Arena scratch(*runtime.device, measuring_bytes, "scratch");
    ops::Context context{*runtime.device, runtime.registry, scratch, runtime.threads.get()};
    check_names();
    verify(context);
    const cpu::Peaks peaks = cpu::measure_peaks(context, 1);
    output.print(fmt::format("{:<24}{:<34}{:>11}{:>11}{:>9}\n", "op", "case", "GFLOP/s", "GB/s", "of peak"));
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const bench::OpCase& each : bench::op_cases()) {
      if (!each.timing_only || !wanted(each.op)) continue;
      const double seconds = bench::time_case(context, each, seconds_);
      const double flops = each.flops / seconds;
      const double bytes = each.bytes / seconds;
      const bool bf16 = !each.operands.empty() && each.operands.back().dtype == DType::bf16;
      const double peak_flops = bf16 ? peaks.bf16_flops : peaks.f32_flops;
      // What limits the case: the larger of the two shares. Above what memory gives, the operands lay in a cache; above
      // the arithmetic peak, that was measured while the machine was busy. Then the share means nothing.
      const double share = std::max(flops / peak_flops, bytes / peaks.read_bytes);
      const bool in_cache = bytes > peaks.read_bytes;
      const bool known = share <= 1;
      output.print(fmt::format("{:<24}{:<34}{:>11.1f}{:>11.1f}{:>9}\n", each.op, each.name, flops / 1e9, bytes / 1e9,
                               in_cache ? "cache"
                               : known  ? fmt::format("{:.0f}%", 100 * share)
                                        : std::string("-")));
      rows.push_back({{"op", each.op},
                      {"case", each.name},
                      {"seconds", seconds},
                      {"gflops", flops / 1e9},
                      {"gb_s", bytes / 1e9},
                      {"share", known ? nlohmann::ordered_json(share) : nlohmann::ordered_json()}});
    }
    output.print_json(json_line({{"peak_bf16_gflops", peaks.bf16_flops / 1e9},
                                 {"peak_f32_gflops", peaks.f32_flops / 1e9},
                                 {"read_gb_s", peaks.read_bytes / 1e9},
                                 {"rows", rows}}));
    return 0;
  }

 private:
  bool wanted(const std::string& op) const {
    return ops_.empty() || std::find(ops_.begin(), ops_.end(), op) != ops_.end();
  }

  void check_names() const {
    for (const std::string& op : ops_) {
      const auto& all = bench::op_cases();
      if (std::any_of(all.begin(), all.end(), [&](const bench::OpCase& each) { return each.op == op; })) continue;
      throw_hint(ErrorKind::usage, "docs/support-matrix.md lists them", "there is no op '{}'", op);
    }
  }

  // A wrong answer is not worth timing.
  void verify(ops::Context& context) const {
    for (const bench::OpCase& each : bench::op_cases()) {
      if (each.timing_only || !wanted(each.op)) continue;
      const bench::Verdict verdict = bench::compare(context, each);
      if (verdict.outcome == bench::Outcome::failed) {
        throw_error(ErrorKind::internal, "{}, {}: {}", each.op, each.name, verdict.text);
      }
    }
  }

  std::vector<std::string> ops_;
  std::optional<int64_t> threads_;
  double seconds_ = 0.2;
};

class Bench : public Command {
 public:
  const char* name() const override { return "bench"; }
  const char* summary() const override { return "verify, then time"; }
  void declare(Arguments& arguments) override { arguments.example("ingot bench op"); }
  int run(const Output&) override { return 0; }
  std::vector<std::unique_ptr<Command>> children() override {
    std::vector<std::unique_ptr<Command>> all;
    all.push_back(std::make_unique<BenchOp>());
    all.push_back(bench_tokenizer_command());
    return all;
  }
};

}  // namespace

std::unique_ptr<Command> bench_command() { return std::make_unique<Bench>(); }

}  // namespace ingot::app
