#include "train/event_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/append_file.h"
#include "base/file.h"
#include "base/file_version.h"
#include "base/json.h"
#include "base/path.h"

namespace ingot::train {

namespace {

using Json = nlohmann::ordered_json;

// The lines of an earlier process's file to keep: complete lines of steps up to `last_kept_step`.
std::string kept_lines(const std::filesystem::path& path, int64_t last_kept_step) {
  if (!path_exists(path)) return {};
  const std::string all = read_file(path);
  std::string lines;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = all.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string_view line(all.data() + begin, end - begin);
    begin = end + 1;
    const Json event = try_parse_json(line);
    if (event.is_discarded() || !event.is_object()) continue;
    const auto step = event.find("step");
    if (step != event.end() && step->is_number_integer() && step->get<int64_t>() > last_kept_step) continue;
    lines.append(line).push_back('\n');
  }
  return lines;
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

void add_rates(Json& event, const DeviceRates& rates) {
  event["peak_tflops"] = rates.peak / 1e12;
  event["gemm_tflops"] = rates.gemm / 1e12;
  event["rates_measured"] = rates.date.empty() ? Json(nullptr) : Json(rates.date);
}

Json as_json(const DataCounts& counts) {
  Json json = {{"documents", counts.documents}, {"sequences", counts.sequences}, {"bad_lines", counts.bad_lines}};
  if (counts.bad_lines > 0) json["first_bad_line"] = counts.first_bad_line;
  return json;
}

}  // namespace

struct EventLog::File {
  explicit File(std::filesystem::path path) : lines(std::move(path)) {}

  AppendFile lines;

  void write(const Json& event) { lines.append(event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"); }
};

void require_known_events(const std::filesystem::path& path) {
  if (!path_exists(path)) return;
  const std::string all = read_file(path);
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    const std::string_view line(all.data() + begin, end - begin);
    begin = end + 1;
    if (line.find("\"start\"") == std::string_view::npos) continue;  // most lines need not be parsed
    const Json event = try_parse_json(line);
    if (event.is_object() && event.value("type", Json()) == "start") {
      require_known_version(path.string(), event, event_log_format);
    }
  }
}

EventLog::EventLog(std::filesystem::path path, int64_t last_kept_step) {
  write_file(path, kept_lines(path, last_kept_step));
  file_ = std::make_unique<File>(std::move(path));
}

EventLog::~EventLog() = default;

void EventLog::on_start(const StartEvent& e) {
  Json line = {{"type", "start"},
               {"version", event_log_format.newest},
               {"name", e.name},
               {"first_step", e.first_step},
               {"steps", e.steps},
               {"parameters", e.parameters},
               {"trained", e.trainable},
               {"device", e.device},
               {"ranks", e.ranks},
               {"precision", e.precision},
               {"resumed", e.resumed},
               {"batch_micro", e.micro},
               {"batch_micro_reason", e.micro_batch_reason},
               {"data", {{"train", as_json(e.train)}, {"eval", as_json(e.eval)}}}};
  add_rates(line, e.rates);
  file_->write(line);
}

void EventLog::on_step(const StepEvent& e) {
  Json line = {{"type", "step"},
               {"step", e.step},
               {"loss", e.loss},
               {"lr", e.lr},
               {"grad_norm", e.grad_norm},
               {"tokens", e.tokens},
               {"tokens_per_s", e.tokens_per_s},
               {"padding", e.padding},
               {"tflops", e.tflops},
               {"mfu", or_null(e.shares.mfu)},
               {"mfu_full_square", or_null(e.shares.mfu_full_square)},
               {"hfu", or_null(e.shares.hfu)},
               {"gemm_share", or_null(e.shares.gemm)},
               {"step_s", e.step_s},
               {"data_s", e.data_s},
               {"memory_bytes", e.memory_bytes},
               {"skipped", e.skipped}};
  if (e.energy_j) line["energy_j"] = *e.energy_j;
  file_->write(line);
}

void EventLog::on_eval(const EvalEvent& e) {
  file_->write({{"type", "eval"},
                {"step", e.step},
                {"loss", e.loss},
                {"perplexity", e.perplexity},
                {"tokens", e.tokens},
                {"seconds", e.seconds}});
}

void EventLog::on_sample(const SampleEvent& e) {
  file_->write({{"type", "sample"}, {"step", e.step}, {"prompt", e.prompt}, {"text", e.text}});
}

void EventLog::on_checkpoint(const CheckpointEvent& e) {
  file_->write({{"type", "checkpoint"},
                {"step", e.step},
                {"path", e.path.string()},
                {"bytes", e.bytes},
                {"seconds", e.seconds},
                {"paused_s", e.paused}});
}

void EventLog::on_warning(const WarningEvent& e) {
  file_->write({{"type", "warning"}, {"step", e.step}, {"message", e.message}});
}

void EventLog::on_end(const EndEvent& e) {
  Json line = {{"type", "end"}, {"step", e.step}, {"reason", e.reason}, {"seconds", e.seconds}, {"tokens", e.tokens}};
  if (e.error.empty()) {
    line["peak_memory_bytes"] = e.peak_memory_bytes;
  } else {
    line["error"] = e.error;
  }
  add_rates(line, e.rates);
  file_->write(line);
}

}  // namespace ingot::train
