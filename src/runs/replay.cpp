#include "runs/replay.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/file_version.h"
#include "base/json.h"
#include "base/path.h"
#include "checkpoint/native.h"
#include "data/loader.h"
#include "runs/data.h"
#include "runs/folder.h"
#include "runs/model.h"
#include "runs/plan.h"
#include "runs/ranks.h"
#include "runtime/runtime.h"
#include "spec/rounding.h"
#include "tensor/tolerance.h"
#include "train/run_checkpoint.h"

namespace ingot::runs {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

// A step's values from the run's events. Numbers parse to exactly the doubles that were written; non-finite ones are
// NaN.
struct Recorded {
  double loss = 0, grad_norm = 0, lr = 0;
  std::string arch;   // of the run's device
  int64_t ranks = 1;  // ranks of the run
  int64_t micro = 0;  // sequences of its micro-batches; 0: not recorded
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
  int64_t micro = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json event = try_parse_json(line);
    if (!event.is_object()) continue;  // the last line of a killed run
    const std::string type = event.value("type", "");
    if (type == "start") {
      require_known_version(events.string(), event, event_log_format);
      const std::string device = event.value("device", "");  // "cuda:0 sm_90"
      arch = device.substr(device.rfind(' ') + 1);
      ranks = event.value("ranks", ranks);
      micro = event.value("batch_micro", int64_t{0});
    } else if (type == "step" && event.contains("step")) {
      steps[event["step"].get<int64_t>()] = {
          number(event, "loss"), number(event, "grad_norm"), number(event, "lr"), arch, ranks, micro};
    }
  }
  return steps;
}

// The run's recipe, for one device and without settings that do not affect a step.
train::Recipe read_recipe(const fs::path& run, const std::vector<std::string>& changes) {
  const fs::path path = run / "recipe.yaml";
  if (!path_exists(path)) {
    throw_hint(ErrorKind::not_found, "give a run folder of ingot pretrain or ingot finetune: runs/NAME",
               "{}: has no recipe.yaml", run.string());
  }
  std::vector<std::string> overrides = {
      "parallel.dp=1",        "parallel.cp=1",         "parallel.pp=1",
      "parallel.tp=1",        "parallel.zero=0",       "parallel.shard=auto",
      "parallel.chunks=auto", "parallel.offload=none", "parallel.sequence_parallel=false",
      "parallel.ep=1"};
  overrides.insert(overrides.end(), changes.begin(), changes.end());
  train::Recipe recipe = train::read_recipe(path, overrides);
  recipe.device = recipe.device.substr(0, recipe.device.find(','));  // the first of the ranks' devices
  recipe.data.eval.values.clear();
  recipe.eval.prompts.clear();
  return recipe;
}

}  // namespace

double Compared::difference() const { return now == recorded ? 0 : std::abs(now - recorded) / std::abs(recorded); }

bool Compared::agrees() const {
  if (std::isnan(recorded) || std::isnan(now)) return !std::isfinite(recorded) && !std::isfinite(now);
  return difference() <= allowed;
}

std::string Compared::text(const char* name) const {
  return agrees() && now == recorded ? fmt::format("{} {}", name, now)
                                     : fmt::format("{} {}, recorded {} (relative difference {:.3g}{})", name, now,
                                                   recorded, difference(), agrees() ? "" : ", DISAGREES");
}

Replay replay(const fs::path& folder, const std::vector<std::string>& overrides, std::optional<int64_t> wanted,
              Log& log) {
  const std::string run = folder.string();
  train::Recipe recipe = read_recipe(folder, overrides);
  const std::map<int64_t, Recorded> recorded =
      read_steps(folder / "events.jsonl", train::read_recipe(folder / "recipe.yaml", {}).parallel.ranks());
  if (recorded.empty()) throw_error(ErrorKind::not_found, "{}: events.jsonl records no steps", run);
  const int64_t step = wanted.value_or(recorded.rbegin()->first);
  if (!recorded.contains(step)) {
    throw_error(ErrorKind::usage, "{}: events.jsonl records steps {} to {}, not {}", run, recorded.begin()->first,
                recorded.rbegin()->first, step);
  }
  const bool fixed_point = recipe.determinism == train::Determinism::bitwise;

  runtime::Runtime runtime =
      runtime::open_runtime(recipe.device, recipe.threads.value, train::cpus_of(recipe.affinity));
  const checkpoint::ModelSource source = checkpoint::open_model(recipe.model);
  const spec::ModelSpec model = checkpoint::read_model_spec(source);
  const checkpoint::TextAssets text =
      checkpoint::load_text(recipe.tokenizer ? checkpoint::open_model(*recipe.tokenizer) : source);
  const RunData data = read_run_data(recipe, text, model.vocab, *runtime.threads, log);
  const train::ShardSpec share = share_of(recipe.parallel, 0);
  const RunPlan plan =
      plan_run(recipe, model, data.train->statistics(), 0, plan_weights(recipe, runtime, source, model, share),
               runtime.device->memory_available(), runtime, share);
  RunModel made = make_run_model(plan, runtime, source);
  train::Step work(*runtime.device, runtime.registry, *runtime.threads, made.trained(), *made.optimizer_state,
                   plan.step, plan.decoded);
  made.begin(work);

  const fs::path checkpoints = folder / "checkpoints";
  Replay result;
  bool has_checkpoint = false;
  for (const int64_t each : checkpoint::list_checkpoints(checkpoints)) {
    if (each < step) result.from = each;
    has_checkpoint = has_checkpoint || each == step;
  }
  if (result.from > 0) {
    train::read_run_checkpoint(checkpoints, result.from, run_identity(plan, data.train->content_hash(), made.base),
                               *made.optimizer_state, *runtime.device);
    made.optimizer_state->refresh_weights(work.context());
  }
  log.info("{}: recomputing steps {} to {} on {} {}, from {}", run, result.from + 1, step, runtime.device->name(),
           runtime.device->arch(),
           result.from > 0 ? fmt::format("the checkpoint of step {}", result.from) : "the start of the run");
  bool bitwise = true;
  const int64_t micro_sequences = *plan.recipe.batch.micro.value;
  for (int64_t each = result.from + 1; each <= step; ++each) {
    const data::HostBatch batch = data::make_batch(*data.train, *data.order, each - 1);
    const auto reported = recorded.find(each);
    if (reported == recorded.end())
      throw_error(ErrorKind::corrupt, "{}: events.jsonl does not record step {}", run, each);
    // Uses the recorded learning rate: the schedule may have changed when the run was extended.
    const train::StepResult computed = work.run(each, reported->second.lr, batch.sequences, batch.samples);
    // Sums over ranks have another order than on one device, and on GPUs sums over another micro-batch; for fixed-point
    // sums the order does not matter.
    const bool same_sums = reported->second.ranks == 1 &&
                           (runtime.device->kind() == DeviceKind::cpu || reported->second.micro == micro_sequences);
    bitwise = bitwise && reported->second.arch == runtime.device->arch() && (fixed_point || same_sums);
    const double allowed =
        bitwise ? 0 : tolerance(plan.step.activation, (each - result.from) * spec::chain_length(model));
    result.steps.push_back({each,
                            bitwise,
                            {reported->second.loss, computed.loss, allowed},
                            {reported->second.grad_norm, computed.grad_norm, allowed}});
    log.info("step {}: {}, {}", each, result.steps.back().loss.text("loss"),
             result.steps.back().grad_norm.text("gradient norm"));
  }
  if (has_checkpoint && bitwise) {
    result.tensors_that_differ = train::tensors_that_differ(checkpoints, step, *made.optimizer_state, *runtime.device);
  }
  result.device = runtime.device->name();
  result.arch = runtime.device->arch();
  return result;
}

}  // namespace ingot::runs
