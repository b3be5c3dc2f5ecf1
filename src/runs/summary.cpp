#include "runs/summary.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/environment.h"
#include "base/path.h"
#include "base/strings.h"

namespace ingot::runs {

namespace {

namespace fs = std::filesystem;

// The shell command for this executable: its name if PATH finds it, else its path.
std::string own_command() {
  const fs::path self = executable_path();
  const char* variable = environment("PATH");
  std::istringstream folders(variable != nullptr ? variable : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path found = fs::path(folder) / "ingot";
    if (::access(found.c_str(), X_OK) != 0) continue;
    std::error_code failed;
    if (fs::equivalent(found, self, failed)) return "ingot";
    break;
  }
  const fs::path near = self.lexically_relative(absolute_path("").lexically_normal());
  if (near.empty() || *near.begin() == "..") return self.string();
  return near.has_parent_path() ? near.string() : "./" + near.string();
}

}  // namespace

std::string end_report(const RunPlan& plan, const RunData& data, const Console::Summary& seen,
                       const std::filesystem::path& result) {
  std::string text = "\n";
  if (seen.finished_before) {
    text += fmt::format("finished             all {} steps were already done\n", seen.end.step);
  } else {
    if (seen.first_eval && seen.last_eval) {
      text += fmt::format("held-out perplexity  {:.3f} before, {:.3f} after (loss {:.4f}, {:.4f})\n",
                          seen.first_eval->perplexity, seen.last_eval->perplexity, seen.first_eval->loss,
                          seen.last_eval->loss);
    } else if (seen.last_eval) {
      text += fmt::format("held-out perplexity  {:.3f}\n", seen.last_eval->perplexity);
    }
    text += fmt::format("speed                {:.0f} tokens/s", seen.mean_tokens_per_s);
    if (seen.mean_mfu) text += fmt::format(", MFU {:.1f} % (causal)", 100 * *seen.mean_mfu);
    if (seen.mean_mfu && !seen.end.rates.date.empty()) {
      text += fmt::format(" of {:.3f} TFLOP/s, measured {}", seen.end.rates.peak / 1e12, seen.end.rates.date);
    }
    text += fmt::format("\npadding              {:.1f} % of what was computed, not in the speed\n",
                        100 * seen.mean_padding);
    text += fmt::format("peak memory          {}\n", format_bytes(seen.end.peak_memory_bytes));
  }
  const data::DatasetStatistics& read = data.train->statistics();
  const int64_t bad_lines = read.num_bad_lines + (data.eval ? data.eval->statistics().num_bad_lines : 0);
  if (bad_lines > 0) {
    text += fmt::format("malformed lines      {} skipped; the first: {}\n", bad_lines,
                        read.num_bad_lines > 0 ? read.first_bad_line : data.eval->statistics().first_bad_line);
  }
  text += fmt::format("{:<20} {}\n", plan.lora ? "adapter" : "model", result.string());
  const bool tuned = plan.recipe.init == train::InitFrom::pretrained;
  const size_t samples = std::min(seen.first_samples.size(), seen.last_samples.size());
  for (size_t i = 0; i < samples; ++i) {
    text += fmt::format("\nprompt: {}\n  {:<8}{}\n  {:<8}{}\n", seen.first_samples[i].prompt,
                        tuned ? "base:" : "before:", seen.first_samples[i].text,
                        tuned ? "tuned:" : "after:", seen.last_samples[i].text);
  }
  const std::string ingot = own_command();
  text += plan.lora ? fmt::format("\nTalk to it:  {} chat --model {} --adapter {}\n", ingot, plan.recipe.model,
                                  result.string())
                    : fmt::format("\nTry it:  {} generate --model {} --prompt \"...\"\n", ingot, result.string());
  return text;
}

}  // namespace ingot::runs
