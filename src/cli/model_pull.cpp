// ingot model pull: fetches a model and registers it.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/strings.h"
#include "checkpoint/pull.h"
#include "cli/command.h"
#include "cli/interrupt.h"

namespace ingot::cli {

namespace {

// A progress bar for each file.
class PullProgress {
 public:
  void update(const std::string& file, uint64_t done, uint64_t total) {
    if (!bar_ || file != file_) {
      bar_.reset();
      file_ = file;
      ProgressOptions options{progress_style(false), "B"};
      options.start = static_cast<int64_t>(done);
      bar_.emplace(file, static_cast<int64_t>(total), options);
    }
    if (total > 0) bar_->set_total(static_cast<int64_t>(total));
    bar_->update(static_cast<int64_t>(done));
  }

 private:
  std::string file_;
  std::optional<Progress> bar_;
};

class ModelPull : public Command {
 public:
  const char* name() const override { return "pull"; }
  const char* summary() const override { return "download a model into the store, or register a local one"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.positional("origin", origin_,
                         "org/model[@revision] on the Hugging Face hub, an http(s):// or s3:// address, or a path");
    arguments.option("name", name_, "the name to register it under (default: the name of the origin)");
    arguments.option("endpoint", endpoint_, "address of another hub (default: $HF_ENDPOINT, else the public hub)");
    arguments.flag("copy", copy_, "copy the files of a local path into the store instead of referring to them");
    arguments.example("ingot model pull HuggingFaceTB/SmolLM2-135M-Instruct");
  }

  int run(const Output& output) override {
    const StopSignal stop(&exit_interrupted);
    PullProgress progress;
    checkpoint::PullOptions options;
    options.home = checkpoint::ingot_home();
    options.name = name_;
    options.endpoint = endpoint_;
    options.copy = copy_;
    options.progress = [&](const std::string& file, uint64_t done, uint64_t total) {
      progress.update(file, done, total);
      return !stop.requested();
    };
    try {
      const checkpoint::RegisteredModel model = checkpoint::pull(origin_, options);
      uint64_t bytes = 0;
      for (const checkpoint::RegisteredFile& file : model.files) bytes += file.size;
      output.print(fmt::format("{}  {}{}\n", model.name, model.path.string(),
                               bytes > 0 ? fmt::format("  ({})", format_bytes(bytes)) : ""));
      output.print_json(json_line({{"name", model.name},
                                   {"path", model.path.string()},
                                   {"origin", model.origin},
                                   {"files", model.files.size()},
                                   {"bytes", bytes}}));
      return 0;
    } catch (const Error&) {
      if (!stop.requested()) throw;
      Log(LogLevel::info).info("stopped; run the same command again to continue");
      return 130;
    }
  }

 private:
  std::string origin_, name_, endpoint_;
  bool copy_ = false;
};

}  // namespace

std::unique_ptr<Command> model_pull_command() { return std::make_unique<ModelPull>(); }

}  // namespace ingot::cli
