// ingot report: training curves of one or several runs as a page and as a picture.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "report/key_figures.h"
#include "report/page.h"
#include "report/picture.h"
#include "report/run_log.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json facts_json(const report::RunLog& run) {
  const report::KeyFigures figures = report::key_figures_of(run);
  return {{"name", run.name},
          {"folder", run.folder.string()},
          {"step", run.last_step},
          {"steps", run.num_planned_steps},
          {"ended", run.end_reason.empty() ? Json(nullptr) : Json(run.end_reason)},
          {"loss", finite(figures.final_loss)},
          {"eval_loss_before", finite(figures.eval_loss_before)},
          {"eval_loss_after", finite(figures.eval_loss_after)},
          {"perplexity_before", finite(figures.perplexity_before)},
          {"perplexity_after", finite(figures.perplexity_after)},
          {"tokens", run.num_tokens},
          {"seconds", finite(figures.seconds)},
          {"tokens_per_s", finite(figures.tokens_per_s)},
          {"padding", finite(figures.padding)},
          {"mfu", finite(figures.mfu)},
          {"peak_memory_bytes", run.peak_memory > 0 ? Json(static_cast<uint64_t>(run.peak_memory)) : Json(nullptr)},
          {"skipped", run.num_skipped},
          {"unread_lines", run.num_unread_lines},
          {"device", run.device}};
}

class ReportCommand : public Command {
 public:
  const char* name() const override { return "report"; }
  const char* summary() const override { return "draw the curves of one or more runs on one HTML page"; }
  bool reports() const override { return true; }

  void declare(Arguments& arguments) override {
    arguments.positional("run", folders_, "run folders: runs/NAME");
    arguments.option("out", out_,
                     "the HTML file to write (default: report.html, in the run's folder if there is only one run)");
    arguments.option("svg", svg_, "also write loss and held-out perplexity as one SVG picture to this file");
    arguments.example("ingot report runs/demo --svg curves.svg");
  }

  int run(const Output& output) override {
    std::vector<report::RunLog> runs;
    for (const std::string& folder : folders_) runs.push_back(report::read_run(folder));
    const std::filesystem::path path = out_               ? std::filesystem::path(*out_)
                                       : runs.size() == 1 ? runs[0].folder / "report.html"
                                                          : std::filesystem::path("report.html");
    write_file(path, report::page(runs));
    output.print(fmt::format("{}\n", path.string()));
    Json result = {{"path", path.string()}};
    if (svg_) {
      write_file(*svg_, report::picture(runs));
      output.print(fmt::format("{}\n", *svg_));
      result["svg"] = *svg_;
    }
    result["runs"] = Json::array();
    for (const report::RunLog& run : runs) result["runs"].push_back(facts_json(run));
    output.print_json(result.dump(-1, ' ', false, Json::error_handler_t::replace));
    return 0;
  }

 private:
  std::vector<std::string> folders_;
  std::optional<std::string> out_, svg_;
};

}  // namespace

std::unique_ptr<Command> report_command() { return std::make_unique<ReportCommand>(); }

}  // namespace ingot::cli
