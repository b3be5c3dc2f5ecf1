// ingot replay: repeats a step of a run and compares the results with those recorded: a check for silent data
// corruption, on this or another machine.
#include "runs/replay.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/interrupt.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

class Replay : public Command {
 public:
  const char* name() const override { return "replay"; }
  const char* summary() const override { return "recompute a step of a run and compare it with its recorded events"; }
  bool reports() const override { return true; }
  void declare(Arguments& a) override {
    a.positional("run", run_, "the run's folder: runs/NAME");
    a.positional("overrides", overrides_,
                 "settings that differ on this machine, for instance device=cpu data.train=PATH", false);
    a.option("step", step_, "the step to recompute");
    a.example("ingot replay runs/tiny --step 350 device=cpu");
  }
  int run(const Output& output) override;

 private:
  int report(const Output& output, const runs::Replay& replay) const;

  std::string run_;
  std::vector<std::string> overrides_;
  std::optional<int64_t> step_;
};

int Replay::run(const Output& output) {
  exit_on_interrupt();
  Log log(LogLevel::info);
  return report(output, runs::replay(run_, overrides_, step_, log));
}

// JSON has no NaN.
Json or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

int Replay::report(const Output& output, const runs::Replay& replay) const {
  const std::vector<runs::ReplayedStep>& steps = replay.steps;
  const std::optional<std::vector<std::string>>& differ = replay.tensors_that_differ;
  const runs::ReplayedStep* first = nullptr;  // the first step that disagrees
  Json rows = Json::array();
  for (const runs::ReplayedStep& each : steps) {
    if (first == nullptr && !each.agrees()) first = &each;
    rows.push_back({{"step", each.step},
                    {"loss", or_null(each.loss.now)},
                    {"recorded_loss", or_null(each.loss.recorded)},
                    {"grad_norm", or_null(each.grad_norm.now)},
                    {"recorded_grad_norm", or_null(each.grad_norm.recorded)},
                    {"allowed", each.loss.allowed},
                    {"agrees", each.agrees()}});
  }
  const bool weights_agree = !differ || differ->empty();
  const bool agrees = first == nullptr && weights_agree;
  const bool bitwise = steps.back().bitwise;
  output.print_json(json_line({{"run", run_},
                               {"step", steps.back().step},
                               {"from", replay.from},
                               {"device", replay.device},
                               {"arch", replay.arch},
                               {"to_the_bit", bitwise},
                               {"steps", rows},
                               {"tensors_that_differ", differ ? Json(*differ) : Json(nullptr)},
                               {"agrees", agrees}}));
  const std::string range = steps.size() == 1 ? fmt::format("step {}", steps.back().step)
                                              : fmt::format("steps {} to {}", steps.front().step, steps.back().step);
  if (agrees) {
    output.print(fmt::format(
        "{}: {} {}{}\n", run_, range,
        bitwise ? "reproduced, bit for bit"
                : "reproduced, to rounding: the run was on another kind of device or, with determinism: fast, "
                  "on several ranks or with another micro-batch",
        differ ? "; the checkpoint's weights and optimizer state match too" : ""));
    return 0;
  }
  if (first != nullptr) {
    output.print(fmt::format("{}: step {} DISAGREES: {}; {}\n", run_, first->step, first->loss.text("loss"),
                             first->grad_norm.text("gradient norm")));
  }
  if (!weights_agree) {
    output.print(fmt::format("{}: the checkpoint of step {} DISAGREES in {} tensors; the first: {}\n", run_,
                             steps.back().step, differ->size(), differ->front()));
  }
  output.print(
      "Replay it again, also on another machine: a machine whose results change from run to run is faulty; if all "
      "agree with this replay, the run was computed or recorded wrongly: continue it from an earlier checkpoint.\n");
  return exit_code(ErrorKind::corrupt);
}

}  // namespace

std::unique_ptr<Command> replay_command() { return std::make_unique<Replay>(); }

}  // namespace ingot::cli
