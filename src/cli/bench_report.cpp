// ingot bench report: merges the result lines of tools/gpu_check into one JSON and one page.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/command.h"
#include "report/check_report.h"

namespace ingot::cli {

namespace {

class BenchReport : public Command {
 public:
  const char* name() const override { return "report"; }
  const char* summary() const override {
    return "merge the result lines of tools/gpu_check into one JSON and one Markdown file";
  }
  void declare(Arguments& arguments) override {
    arguments.positional("lines", lines_, "the results.jsonl of tools/gpu_check");
    arguments.option("out", out_, "path of the output without suffix: OUT.json and OUT.md are written", true);
    arguments.example("ingot bench report check/results.jsonl --out bench/reports/2026-11-21-gpu");
  }

  int run(const Output& output) override {
    const nlohmann::ordered_json merged = report::merge_checks(read_file(lines_), lines_);
    write_file(out_ + ".json", merged.dump(1) + "\n");
    write_file(out_ + ".md", report::check_page(merged));
    output.print(fmt::format("{0}.json\n{0}.md\n", out_));
    return 0;
  }

 private:
  std::string lines_, out_;
};

}  // namespace

std::unique_ptr<Command> bench_report_command() { return std::make_unique<BenchReport>(); }

}  // namespace ingot::cli
