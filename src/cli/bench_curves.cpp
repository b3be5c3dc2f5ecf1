// ingot bench curves: whether runs of one recipe, on other devices or moved between devices, agree up to rounding.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "bench/curves.h"
#include "cli/command.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

class BenchCurves : public Command {
 public:
  const char* name() const override { return "curves"; }
  const char* summary() const override { return "check that the losses of runs match the first run's, to rounding"; }
  bool reports() const override { return true; }
  void declare(Arguments& arguments) override {
    arguments.positional("run", folders_, "run folders: runs/NAME; at least two");
    arguments.example("ingot bench curves runs/cpu runs/gpu");
  }

  int run(const Output& output) override {
    const bench::CurvesReport report = bench::compare_curves(folders_);
    Json rows = Json::array();
    for (const bench::CurveAgreement& row : report.rows) {
      output.print(
          fmt::format("{}: {} steps, {} starts; its loss is off {}'s by {:.3g} at most (step {}), {:.3g} is "
                      "allowed{}\n",
                      row.run, row.steps, row.starts, folders_[0], row.difference, row.at, report.allowed,
                      row.agrees ? "" : "  DISAGREES"));
      rows.push_back({{"run", row.run},
                      {"steps", row.steps},
                      {"starts", row.starts},
                      {"largest_difference", row.difference},
                      {"at_step", row.at},
                      {"allowed", report.allowed},
                      {"agrees", row.agrees}});
    }
    output.print_json(json_line({{"first", folders_[0]},
                                 {"steps", report.steps},
                                 {"precision", report.precision},
                                 {"agrees", report.agrees()},
                                 {"rows", rows}}));
    return report.agrees() ? 0 : exit_code(ErrorKind::internal);
  }

 private:
  std::vector<std::string> folders_;
};

}  // namespace

std::unique_ptr<Command> bench_curves_command() { return std::make_unique<BenchCurves>(); }

}  // namespace ingot::cli
