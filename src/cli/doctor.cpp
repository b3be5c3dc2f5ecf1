// ingot doctor: checks the machine and the stores, and gives advice for each problem.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_device.h"
#include "base/cpu_list.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/machine.h"
#include "base/path.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "checkpoint/load.h"
#include "checkpoint/registry.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "runs/preflight.h"

namespace ingot::cli {

namespace fs = std::filesystem;

namespace {

enum class Grade { ok, warn, fail };

const char* name(Grade grade) {
  switch (grade) {
    case Grade::ok: return "ok";
    case Grade::warn: return "warn";
    case Grade::fail: return "fail";
  }
  return "?";
}

struct Finding {
  std::string check;
  Grade grade = Grade::ok;
  std::string message;
  std::string advice;  // empty when no action is needed
};

using Findings = std::vector<Finding>;

constexpr uint64_t gib = uint64_t{1} << 30;

void check_cpu(Findings& findings) {
  const cpu::Isa isa = cpu::best_isa();
  Finding finding{"cpu", Grade::ok, fmt::format("{}, level {}", cpu_name(), cpu::name(isa)), ""};
  if (isa == cpu::Isa::plain) {
    finding.grade = Grade::warn;
    finding.advice = "without AVX2 everything is slow; use another machine, or unset INGOT_CPU_ISA if it is set";
  }
  if (cpu::amx_is_refused()) {
    finding.grade = Grade::warn;
    finding.message += "; it has AMX, but the system does not allow this process to use it";
    finding.advice =
        "bf16 gemms are several times slower than possible: AMX needs Linux 5.16 or later and a container that permits "
        "arch_prctl(ARCH_REQ_XCOMP_PERM)";
  }
  findings.push_back(finding);
}

void check_memory(Findings& findings) {
  const uint64_t available = available_memory();
  Finding finding{"memory", Grade::ok,
                  fmt::format("{} of {} available", format_bytes(available), format_bytes(total_memory())), ""};
  if (available < gib) {
    finding.grade = Grade::warn;
    finding.advice = "close other programs: fine-tuning a 135M model needs about 1 GiB";
  }
  findings.push_back(finding);
}

void check_threads(Findings& findings) {
  const int cpus = available_cpus();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  Finding finding{"threads", Grade::ok, fmt::format("{} CPUs are usable", cpus), ""};
  if (online > cpus) {
    finding.message += fmt::format(" of {} in this machine", online);
    finding.advice = "an affinity mask or a container limit excludes the others; raise it if this is not intended";
  }
  finding.message += fmt::format("; threads can be bound to {}", format_cpu_list(usable_cpus()));
  findings.push_back(finding);
}

void check_environment(Findings& findings) {
  // Often set for other programs. Ingot's own pool ignores the *_NUM_THREADS variables, but they show what the user
  // expects.
  bool odd = false;
  for (const char* variable : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "DNNL_MAX_CPU_ISA",
                               "ONEDNN_MAX_CPU_ISA", "INGOT_CPU_ISA", "INGOT_OPS"}) {
    const char* value = environment(variable);
    if (value == nullptr) continue;
    odd = true;
    const std::string_view which = variable;
    const bool threads = which.ends_with("_NUM_THREADS");
    findings.push_back(
        {"environment", threads ? Grade::ok : Grade::warn, fmt::format("{}={} is set", variable, value),
         threads ? "it has no effect on Ingot; set the number of threads by --threads or the recipe's `threads`"
                 : "it may disable the fastest instructions; unset it unless this is intended"});
  }
  if (!odd)
    findings.push_back({"environment", Grade::ok, "no environment variable changes threads or instructions", ""});
}

// The folder itself or, if it does not exist, its nearest existing ancestor.
fs::path existing_part(fs::path path) {
  path = absolute_path(path);
  std::error_code ignored;
  while (!fs::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path;
}

void check_folder(Findings& findings, const char* check, const fs::path& folder, uint64_t wanted) {
  const fs::path there = existing_part(folder);
  if (access(there.c_str(), W_OK) != 0) {
    findings.push_back({check, Grade::fail, fmt::format("{} cannot be written", there.string()),
                        "make it writable, or choose another folder"});
    return;
  }
  std::error_code error;
  const fs::space_info space = fs::space(there, error);
  if (error) {
    findings.push_back({check, Grade::warn, fmt::format("{}: {}", there.string(), error.message()),
                        "the free space cannot be determined"});
    return;
  }
  Finding finding{check, Grade::ok,
                  fmt::format("{}: writable, {} free", folder.string(), format_bytes(space.available)), ""};
  if (space.available < wanted) {
    finding.grade = Grade::warn;
    finding.advice = fmt::format("free some disk space: {} are used up quickly", format_bytes(wanted));
  }
  findings.push_back(finding);
}

void check_model(Findings& findings, const fs::path& home, const checkpoint::RegisteredModel& model) {
  const std::string again = fmt::format("download it again: ingot model pull {}", model.origin);
  for (const checkpoint::RegisteredFile& file : model.files) {
    const fs::path path = checkpoint::Registry(home).folder(model.name) / file.name;
    std::error_code error;
    const uintmax_t size = fs::file_size(path, error);
    if (error || size != file.size) {
      const std::string found = error ? error.message() : fmt::format("{} bytes instead of {}", size, file.size);
      findings.push_back({"models", Grade::fail, fmt::format("{}: {}: {}", model.name, path.string(), found), again});
      return;
    }
  }
  try {
    const spec::ModelSpec spec = checkpoint::read_model_spec(checkpoint::open_model(model.name, home));
    findings.push_back({"models", Grade::ok, fmt::format("{}: {}, its files are there", model.name, spec.family), ""});
  } catch (const Error& error) {
    findings.push_back({"models", Grade::fail, fmt::format("{}: {}", model.name, error.message()), again});
  }
}

void check_models(Findings& findings, const fs::path& home) {
  try {
    const std::vector<checkpoint::RegisteredModel> models = checkpoint::Registry(home).list();
    if (models.empty()) {
      findings.push_back({"models", Grade::ok, "none registered", "download one: ingot model pull NAME"});
    }
    for (const checkpoint::RegisteredModel& model : models) check_model(findings, home, model);
  } catch (const Error& error) {
    findings.push_back({"models", Grade::fail, error.message(), error.hint()});
  }
}

class Doctor : public Command {
 public:
  const char* name() const override { return "doctor"; }
  const char* summary() const override {
    return "check the machine, the run folder and the model store, and suggest fixes";
  }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.option("run-dir", run_dir_, "the folder for runs");
    arguments.option("ranks", ranks_,
                     "check the ranks of this recipe instead: where they are, their speed, their links");
    arguments.option("machine", machine_,
                     "with --ranks: compare links with this machine, a file or a name of recipes/machines");
    arguments.positional("overrides", overrides_, "with --ranks: settings that replace the recipe's", false);
    arguments.example("ingot doctor");
    arguments.example("mpirun -n 8 ingot doctor --ranks recipes/tiny.yaml parallel.tp=2");
  }

  // Returns 5 (unavailable) when a check failed.
  int run(const Output& output) override {
    if (ranks_) return check_ranks(output);
    if (machine_ || !overrides_.empty()) {
      throw_error(ErrorKind::usage, "{} needs --ranks RECIPE",
                  machine_ ? std::string("--machine") : fmt::format("'{}'", overrides_.front()));
    }
    Findings findings;
    check_cpu(findings);
    check_memory(findings);
    check_threads(findings);
    check_environment(findings);
    const std::optional<fs::path> home = checkpoint::find_ingot_home();
    if (home) check_folder(findings, "store", *home, 2 * gib);
    check_folder(findings, "runs", run_dir_, 2 * gib);
    if (home) {
      check_models(findings, *home);
    } else {
      findings.push_back({"store", Grade::warn, "neither INGOT_HOME nor HOME is set: models can be given by path only",
                          "set INGOT_HOME to a folder to register models by name"});
    }
    return print(output, findings);
  }

 private:
  // Of the recipe's ranks; only the first of them prints.
  int check_ranks(const Output& output) const {
    exit_on_interrupt();
    const train::Recipe recipe = train::read_recipe(*ranks_, overrides_);
    std::optional<runs::MachineFile> machine;
    if (machine_) machine = runs::read_machine_file(*machine_);
    int code = 0;
    runs::check_ranks(recipe, [&](const runs::Preflight& result) {
      Findings findings;
      for (const runs::PreflightFinding& each : runs::findings_of(result, machine)) {
        findings.push_back({each.check, each.advice.empty() ? Grade::ok : Grade::warn, each.message, each.advice});
      }
      code = print(output, findings);
    });
    return code;
  }

  static int print(const Output& output, const Findings& findings) {
    using Json = nlohmann::ordered_json;
    Json list = Json::array();
    bool failed = false;
    for (const Finding& finding : findings) {
      failed = failed || finding.grade == Grade::fail;
      const char* grade = cli::name(finding.grade);
      output.print(fmt::format("{:<5}{:<12} {}\n", grade, finding.check, finding.message));
      if (!finding.advice.empty()) output.print(fmt::format("{:<18}{}\n", "", finding.advice));
      list.push_back(Json{{"check", finding.check},
                          {"status", grade},
                          {"message", finding.message},
                          {"advice", finding.advice.empty() ? Json(nullptr) : Json(finding.advice)}});
    }
    output.print_json(json_line(Json{{"ok", !failed}, {"findings", std::move(list)}}));
    return failed ? exit_code(ErrorKind::unavailable) : 0;
  }

  std::string run_dir_ = "runs";
  std::optional<std::string> ranks_, machine_;
  std::vector<std::string> overrides_;
};

}  // namespace

std::unique_ptr<Command> doctor_command() { return std::make_unique<Doctor>(); }

}  // namespace ingot::cli
