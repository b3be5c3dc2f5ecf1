// A run's scalars for TensorBoard (`log.tensorboard`), beside its events.jsonl: `tensorboard --logdir runs`.
#pragma once

#include <filesystem>
#include <optional>

#include "base/append_file.h"
#include "formats/tensorboard.h"
#include "train/events.h"

namespace ingot::app {

// A file a process in `folder`. One that resumes takes back what earlier files say of the steps that it makes again.
// Errors as AppendFile's.
class TensorboardLog : public train::Observer {
 public:
  // `again`: of a run that is continued, the first step whose events are made again.
  TensorboardLog(const std::filesystem::path& folder, std::optional<int64_t> again);

  void on_step(const train::StepEvent& event) override;
  void on_eval(const train::EvalEvent& event) override;

 private:
  AppendFile file_;
};

}  // namespace ingot::app
