#include "report/run_log.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/file_version.h"
#include "base/json.h"
#include "base/path.h"

namespace ingot::report {

namespace {

using Json = nlohmann::ordered_json;

double number(const Json& event, const char* key) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_number()) return std::numeric_limits<double>::quiet_NaN();
  return found->get<double>();
}

int64_t integer(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

std::string text(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

void add_step(RunLog& run, const Json& event) {
  const int64_t step = integer(event, "step");
  const auto x = static_cast<double>(step);
  run.last_step = std::max(run.last_step, step);
  run.num_tokens = std::max(run.num_tokens, integer(event, "tokens"));
  run.loss.push_back({x, number(event, "loss")});
  run.lr.push_back({x, number(event, "lr")});
  run.grad_norm.push_back({x, number(event, "grad_norm")});
  run.tokens_per_s.push_back({x, number(event, "tokens_per_s")});
  run.padding.push_back({x, number(event, "padding")});
  run.memory.push_back({x, number(event, "memory_bytes")});
  run.mfu.push_back({x, number(event, "mfu")});
  run.step_s.push_back({x, number(event, "step_s")});
  run.data_share.push_back({x, number(event, "data_s") / number(event, "step_s")});
  const auto skipped = event.find("skipped");
  if (skipped != event.end() && skipped->is_boolean() && skipped->get<bool>()) ++run.num_skipped;
  if (run.memory.back().y > run.peak_memory) run.peak_memory = run.memory.back().y;
}

void add_event(RunLog& run, const Json& event) {
  const std::string type = text(event, "type");
  const auto step = static_cast<double>(integer(event, "step"));
  if (type == "start") {
    ++run.num_starts;
    if (const std::string name = text(event, "name"); !name.empty()) run.name = name;
    run.device = text(event, "device");
    run.precision = text(event, "precision");
    run.parameters = integer(event, "parameters");
    run.trainable = integer(event, "trained");
    run.num_planned_steps = integer(event, "steps");
    run.end_reason.clear();
  } else if (type == "step") {
    add_step(run, event);
  } else if (type == "eval") {
    run.eval_loss.push_back({step, number(event, "loss")});
    run.eval_perplexity.push_back({step, number(event, "perplexity")});
  } else if (type == "sample") {
    run.samples.push_back({integer(event, "step"), text(event, "prompt"), text(event, "text")});
  } else if (type == "warning") {
    run.warnings.push_back(fmt::format("step {}: {}", integer(event, "step"), text(event, "message")));
  } else if (type == "end") {
    ++run.num_ends;
    run.end_reason = text(event, "reason");
    if (const double seconds = number(event, "seconds"); std::isfinite(seconds)) run.process_seconds += seconds;
    if (const double peak = number(event, "peak_memory_bytes"); peak > run.peak_memory) run.peak_memory = peak;
  }
}

}  // namespace

RunLog read_run(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  if (!path_exists(folder)) {
    throw_hint(ErrorKind::not_found, "give the folder of a run, such as runs/NAME", "{}: the run folder does not exist",
               folder.string());
  }
  const fs::path path = folder / "events.jsonl";
  if (!path_exists(path)) {
    throw_hint(ErrorKind::not_found, "give a run folder of ingot pretrain or ingot finetune: runs/NAME",
               "{}: has no events.jsonl", folder.string());
  }
  RunLog run;
  run.folder = folder;
  run.name = absolute_path(folder).lexically_normal().filename().string();
  if (run.name.empty()) run.name = absolute_path(folder).lexically_normal().parent_path().filename().string();
  const std::string all = read_file(path);
  int64_t num_events = 0;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    const std::string_view line(all.data() + begin, end - begin);
    begin = end + 1;
    if (line.empty()) continue;
    const Json event = try_parse_json(line);
    if (!event.is_object()) {
      ++run.num_unread_lines;
      continue;
    }
    if (text(event, "type") == "start") require_known_version(path.string(), event, event_log_format);
    add_event(run, event);
    ++num_events;
  }
  if (num_events == 0 && run.num_unread_lines > 0) {
    throw_error(ErrorKind::corrupt, "{}: none of its {} lines is a JSON object", path.string(), run.num_unread_lines);
  }
  if (const fs::path recipe = folder / "recipe.yaml"; path_exists(recipe)) run.recipe = read_file(recipe);
  return run;
}

}  // namespace ingot::report
