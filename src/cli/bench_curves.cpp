// ingot bench curves: whether runs of one recipe, on other devices or moved between devices, agree up to rounding.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "bench/random_model.h"
#include "cli/command.h"
#include "report/run_log.h"
#include "spec/rounding.h"
#include "tensor/tolerance.h"
#include "train/recipe.h"

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
    if (folders_.size() < 2)
      throw_error(ErrorKind::usage, "{} run folder given; at least two are needed", folders_.size());
    const report::RunLog first = report::read_run(folders_[0]);
    std::map<double, double> losses;
    for (const report::Point& point : first.loss) losses[point.x] = point.y;
    const train::Recipe recipe = train::read_recipe(std::filesystem::path(folders_[0]) / "recipe.yaml", {});
    const double allowed =
        tolerance(train::dtype_of(recipe.precision), spec::chain_length(bench::bench_spec(recipe.model)));
    Json rows = Json::array();
    bool agrees = true;
    for (size_t i = 1; i < folders_.size(); ++i) {
      const report::RunLog other = report::read_run(folders_[i]);
      double most = other.loss.size() == losses.size() ? 0 : INFINITY;
      double at = 0;
      for (const report::Point& point : other.loss) {
        const auto found = losses.find(point.x);
        const double difference =
            found == losses.end() ? INFINITY : std::abs(point.y - found->second) / std::abs(found->second);
        if (difference <= most) continue;  // also false for NaN
        most = difference;
        at = point.x;
      }
      const bool same = most <= allowed;
      agrees = agrees && same;
      output.print(fmt::format(
          "{}: {} steps, {} starts; its loss is off {}'s by {:.3g} at most (step {}), {:.3g} is "
          "allowed{}\n",
          folders_[i], other.loss.size(), other.num_starts, folders_[0], most, at, allowed, same ? "" : "  DISAGREES"));
      rows.push_back({{"run", folders_[i]},
                      {"steps", other.loss.size()},
                      {"starts", other.num_starts},
                      {"largest_difference", most},
                      {"at_step", at},
                      {"allowed", allowed},
                      {"agrees", same}});
    }
    output.print_json(json_line({{"first", folders_[0]},
                                 {"steps", first.loss.size()},
                                 {"precision", train::name(recipe.precision)},
                                 {"agrees", agrees},
                                 {"rows", rows}}));
    return agrees ? 0 : exit_code(ErrorKind::internal);
  }

 private:
  std::vector<std::string> folders_;
};

}  // namespace

std::unique_ptr<Command> bench_curves_command() { return std::make_unique<BenchCurves>(); }

}  // namespace ingot::cli
