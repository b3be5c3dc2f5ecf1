// Writes events.jsonl: one JSON object per line, each with a `type` (docs/recipes.md). A `start` line has the `version`
// of the format (base/file_version.h).
#pragma once

#include <filesystem>
#include <memory>

#include "train/events.h"

namespace ingot::train {

// Errors: as require_known_version, for a file with the events of a newer version. A file that does not exist is fine.
void require_known_events(const std::filesystem::path& path);

// Appends one line per event to the file and flushes each. When a run resumes, lines of steps after `last_kept_step`
// are removed first, because those steps run again; the file then reads as one run. Errors: unavailable / resource
// naming the file.
class EventLog : public Observer {
 public:
  EventLog(std::filesystem::path path, int64_t last_kept_step);
  ~EventLog() override;

  void on_start(const StartEvent& event) override;
  void on_step(const StepEvent& event) override;
  void on_eval(const EvalEvent& event) override;
  void on_sample(const SampleEvent& event) override;
  void on_checkpoint(const CheckpointEvent& event) override;
  void on_warning(const WarningEvent& event) override;
  void on_end(const EndEvent& event) override;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace ingot::train
