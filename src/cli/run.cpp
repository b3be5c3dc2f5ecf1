// `ingot pretrain` and `ingot finetune`: reads, resolves and runs a recipe.
#include "runs/run.h"

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "runs/supervisor.h"

namespace ingot::cli {

namespace {

class RunCommand : public Command {
 public:
  RunCommand(const char* name, const char* summary, const char* example)
      : name_(name), summary_(summary), example_(example) {}

  const char* name() const override { return name_; }
  const char* summary() const override { return summary_; }
  void declare(Arguments& a) override {
    a.positional("recipe", recipe_path_, "a recipe (YAML)");
    a.positional("overrides", overrides_, "settings that replace the recipe's, for instance optimizer.lr=1e-4", false);
    a.flag("dry-run", dry_run_, "print the resolved recipe and the memory it needs, and stop");
    a.option("rank", rank_, "with --dry-run: the memory of this rank alone");
    a.option("machine", machine_, "with --dry-run: plan for this machine, a file or a name of recipes/machines");
    a.flag("resume", resume_word_,
           "continue the run from its newest checkpoint; --resume=fresh restarts a run that has no checkpoint, and "
           "--resume=auto does what is needed, also at the first start");
    a.flag("quiet", quiet_, "no progress bar");
    a.option("restarts", restarts_, "when the run fails, restart it from its last checkpoint, at most this many times");
    a.option("restart-wait", restart_wait_, "seconds before the first restart; doubled for each further one (10)");
    a.option("launcher", launcher_, "with --restarts: command that launches the ranks, for instance \"mpirun -n 4\"");
    a.example(example_);
  }
  int run(const Output& output) override;

 private:
  int run_supervised(const train::Recipe& r) const;

  const char* name_;
  const char* summary_;
  const char* example_;
  std::string recipe_path_;
  std::vector<std::string> overrides_;
  std::optional<std::string> resume_word_;
  runs::Resume resume_ = runs::Resume::no;
  bool dry_run_ = false, quiet_ = false;
  std::optional<int64_t> rank_;
  std::optional<std::string> machine_;
  int64_t restarts_ = 0;
  double restart_wait_ = 10;
  std::optional<std::string> launcher_;
};

runs::Resume resume_mode(const std::optional<std::string>& word) {
  if (!word) return runs::Resume::no;
  if (word->empty()) return runs::Resume::yes;
  if (*word == "fresh") return runs::Resume::fresh;
  if (*word == "auto") return runs::Resume::automatic;
  throw_error(ErrorKind::usage, "--resume={} is not known; use --resume, --resume=fresh or --resume=auto", *word);
}

int RunCommand::run(const Output& output) {
  exit_on_interrupt();  // until the first step nothing would be lost
  resume_ = resume_mode(resume_word_);
  train::Recipe recipe = train::read_recipe(recipe_path_, overrides_);
  if (std::string_view(name_) == "finetune" && recipe.init == train::InitFrom::random) {
    throw_hint(ErrorKind::usage, "use ingot pretrain",
               "init: random cannot be fine-tuned: there are no pretrained weights");
  }
  if (rank_ && !dry_run_) throw_error(ErrorKind::usage, "--rank needs --dry-run");
  if (machine_ && !dry_run_) throw_error(ErrorKind::usage, "--machine needs --dry-run");
  if (launcher_ && restarts_ == 0) throw_error(ErrorKind::usage, "--launcher needs --restarts");
  if (restarts_ < 0 || restart_wait_ < 0)
    throw_error(ErrorKind::usage, "--restarts and --restart-wait must be at least 0");
  if (restarts_ > 0 && !dry_run_) return run_supervised(recipe);
  return runs::run({.recipe = std::move(recipe),
                    .resume = resume_,
                    .dry_run = dry_run_,
                    .rank = rank_,
                    .machine = machine_,
                    .quiet = quiet_,
                    .print = [&output](std::string_view text) { output.print(text); },
                    .second_signal = &exit_interrupted});
}

int RunCommand::run_supervised(const train::Recipe& r) const {
  runs::Supervised what;
  what.launcher = launcher_.value_or("");
  what.arguments = {name_, recipe_path_};
  what.arguments.insert(what.arguments.end(), overrides_.begin(), overrides_.end());
  if (quiet_) what.arguments.emplace_back("--quiet");
  what.resume = resume_;
  what.run = runs::run_folder(r);
  what.restarts = restarts_;
  what.wait_s = restart_wait_;
  Log log(LogLevel::info);
  return runs::supervise(what, log);
}

}  // namespace

std::unique_ptr<Command> pretrain_command() {
  return std::make_unique<RunCommand>("pretrain", "train a model by a recipe, from random or given weights",
                                      "ingot pretrain recipes/tiny.yaml steps=200 optimizer.lr=1e-3");
}

std::unique_ptr<Command> finetune_command() {
  return std::make_unique<RunCommand>("finetune", "fine-tune a model by a recipe, in full or with LoRA",
                                      "ingot finetune recipes/demo.yaml model=path/to/model steps=60");
}

}  // namespace ingot::cli
