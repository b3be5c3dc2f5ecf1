// ingot replay: repeats a step of a run and compares the results with those recorded: a check for silent data
// corruption, on this or another machine.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/bench_model.h"
#include "app/command.h"
#include "app/interrupt.h"
#include "app/json_text.h"
#include "app/run_data.h"
#include "app/run_folder.h"
#include "app/run_model.h"
#include "app/run_plan.h"
#include "app/runtime.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/path.h"
#include "checkpoint/native.h"
#include "data/loader.h"
#include "tensor/tolerance.h"
#include "train/run_checkpoint.h"

namespace ingot::app {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

// A step's values from the run's events. Numbers parse to exactly the doubles that were written; non-finite ones are
// NaN.
struct Recorded {
  double loss = 0, grad_norm = 0, lr = 0;
  std::string arch;   // of the run's device
  int64_t ranks = 1;  // ranks of the run
};

double number(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// `ranks`: the number of ranks for events without it.
std::map<int64_t, Recorded> read_steps(const fs::path& events, int64_t ranks) {
  std::istringstream lines(read_file(events));
  std::map<int64_t, Recorded> steps;
  std::string arch;
  for (std::string line; std::getline(lines, line);) {
    const Json event = try_parse_json(line);
    if (!event.is_object()) continue;  // the last line of a killed run
    const std::string type = event.value("type", "");
    if (type == "start") {
      const std::string device = event.value("device", "");  // "cuda:0 sm_90"
      arch = device.substr(device.rfind(' ') + 1);
      ranks = event.value("ranks", ranks);
    } else if (type == "step" && event.contains("step")) {
      steps[event["step"].get<int64_t>()] = {number(event, "loss"), number(event, "grad_norm"), number(event, "lr"),
                                             arch, ranks};
    }
  }
  return steps;
}

// Two values of one quantity. They agree if their bits are equal, or their relative difference is at most `allowed`.
struct Compared {
  double recorded = 0, now = 0, allowed = 0;

  double difference() const { return now == recorded ? 0 : std::abs(now - recorded) / std::abs(recorded); }
  bool agrees() const {
    if (std::isnan(recorded) || std::isnan(now)) return !std::isfinite(recorded) && !std::isfinite(now);
    return difference() <= allowed;
  }
  std::string text(const char* name) const {
    return agrees() && now == recorded ? fmt::format("{} {}", name, now)
                                       : fmt::format("{} {}, recorded {} (off by {:.3g} of it{})", name, now, recorded,
                                                     difference(), agrees() ? "" : ", DISAGREES");
  }
};

struct ReplayedStep {
  int64_t step = 0;
  bool to_the_bit = false;  // whether bitwise equality is guaranteed here
  Compared loss, grad_norm;

  bool agrees() const { return loss.agrees() && grad_norm.agrees(); }
};

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
  train::Recipe read_recipe() const;
  int report(const Output& output, const std::vector<ReplayedStep>& steps, const Runtime& runtime,
             const std::optional<std::vector<std::string>>& differ) const;

  std::string run_;
  std::vector<std::string> overrides_;
  std::optional<int64_t> step_;
  int64_t from_ = 0;
};

// The run's recipe, for one device and without settings that do not affect a step.
train::Recipe Replay::read_recipe() const {
  const fs::path path = fs::path(run_) / "recipe.yaml";
  if (!path_exists(path)) {
    throw_hint(ErrorKind::not_found, "give a run folder of ingot pretrain or ingot finetune: runs/NAME",
               "{}: has no recipe.yaml", run_);
  }
  std::vector<std::string> overrides = {"parallel.dp=1", "parallel.zero=0"};
  overrides.insert(overrides.end(), overrides_.begin(), overrides_.end());
  train::Recipe recipe = train::read_recipe(path, overrides);
  recipe.device = recipe.device.substr(0, recipe.device.find(','));  // the first of the ranks' devices
  recipe.data.eval.values.clear();
  recipe.eval.prompts.clear();
  return recipe;
}

int Replay::run(const Output& output) {
  exit_on_interrupt();
  const fs::path folder = run_;
  train::Recipe recipe = read_recipe();
  const std::map<int64_t, Recorded> recorded =
      read_steps(folder / "events.jsonl", train::read_recipe(folder / "recipe.yaml", {}).parallel.dp);
  if (recorded.empty()) throw_error(ErrorKind::not_found, "{}: events.jsonl records no steps", run_);
  const int64_t step = step_.value_or(recorded.rbegin()->first);
  if (!recorded.contains(step)) {
    throw_error(ErrorKind::usage, "{}: events.jsonl records steps {} to {}, not {}", run_, recorded.begin()->first,
                recorded.rbegin()->first, step);
  }
  const bool fixed = recipe.determinism == train::Determinism::bitwise;

  Log log(LogLevel::info);
  Runtime runtime = open_runtime(recipe.device, recipe.threads.value, train::cpus_of(recipe));
  const checkpoint::ModelSource source = checkpoint::open_model(recipe.model);
  const spec::ModelSpec model = checkpoint::read_model_spec(source);
  const checkpoint::TextAssets text =
      checkpoint::load_text(recipe.tokenizer ? checkpoint::open_model(*recipe.tokenizer) : source);
  const RunData data = read_run_data(recipe, text, model.vocab, *runtime.threads, log);
  const RunPlan plan =
      plan_run(recipe, model, data.train->statistics(), 0, plan_weights(recipe, runtime, source, model),
               runtime.device->memory_available(), runtime);
  RunModel made = make_run_model(plan, runtime, source);
  train::Step work(*runtime.device, runtime.registry, *runtime.threads, *made.model, *made.optimizer_state, plan.step,
                   plan.decoded);
  made.begin(work);

  const fs::path checkpoints = folder / "checkpoints";
  bool kept = false;
  for (const int64_t each : checkpoint::list_checkpoints(checkpoints)) {
    if (each < step) from_ = each;
    kept = kept || each == step;
  }
  if (from_ > 0) {
    train::read_run_checkpoint(checkpoints, from_, run_identity(plan, data.train->content_hash(), made.base),
                               *made.optimizer_state, *runtime.device);
    made.optimizer_state->refresh_weights(work.context());
  }
  log.info("{}: recomputing steps {} to {} on {} {}, from {}", run_, from_ + 1, step, runtime.device->name(),
           runtime.device->arch(),
           from_ > 0 ? fmt::format("the checkpoint of step {}", from_) : "the start of the run");
  std::vector<ReplayedStep> steps;
  bool to_the_bit = true;
  for (int64_t each = from_ + 1; each <= step; ++each) {
    const data::HostBatch batch = data::make_batch(*data.train, *data.order, each - 1);
    const auto reported = recorded.find(each);
    if (reported == recorded.end())
      throw_error(ErrorKind::corrupt, "{}: events.jsonl does not record step {}", run_, each);
    // Uses the recorded learning rate: the schedule may have changed when the run was extended.
    const train::StepResult result = work.run(each, reported->second.lr, batch.sequences, batch.samples);
    // Sums over ranks have another order than on one device; for fixed-point sums the order does not matter.
    to_the_bit =
        to_the_bit && reported->second.arch == runtime.device->arch() && (fixed || reported->second.ranks == 1);
    const double allowed = to_the_bit ? 0 : tolerance(plan.step.activation, (each - from_) * chain_length(model));
    steps.push_back({each,
                     to_the_bit,
                     {reported->second.loss, result.loss, allowed},
                     {reported->second.grad_norm, result.grad_norm, allowed}});
    log.info("step {}: {}, {}", each, steps.back().loss.text("loss"), steps.back().grad_norm.text("gradient norm"));
  }
  std::optional<std::vector<std::string>> differ;
  if (kept && to_the_bit) {
    differ = train::tensors_that_differ(checkpoints, step, *made.optimizer_state, *runtime.device);
  }
  return report(output, steps, runtime, differ);
}

// JSON has no NaN.
Json or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

int Replay::report(const Output& output, const std::vector<ReplayedStep>& steps, const Runtime& runtime,
                   const std::optional<std::vector<std::string>>& differ) const {
  const ReplayedStep* first = nullptr;  // the first step that disagrees
  Json rows = Json::array();
  for (const ReplayedStep& each : steps) {
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
  const bool to_the_bit = steps.back().to_the_bit;
  output.print_json(json_line({{"run", run_},
                               {"step", steps.back().step},
                               {"from", from_},
                               {"device", runtime.device->name()},
                               {"arch", runtime.device->arch()},
                               {"to_the_bit", to_the_bit},
                               {"steps", rows},
                               {"tensors_that_differ", differ ? Json(*differ) : Json(nullptr)},
                               {"agrees", agrees}}));
  const std::string range = steps.size() == 1 ? fmt::format("step {}", steps.back().step)
                                              : fmt::format("steps {} to {}", steps.front().step, steps.back().step);
  if (agrees) {
    output.print(fmt::format("{}: {} {}{}\n", run_, range,
                             to_the_bit ? "reproduced, bit for bit"
                                        : "reproduced, to rounding: the run was on another kind of device, or on "
                                          "several ranks with determinism: fast",
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

}  // namespace ingot::app
