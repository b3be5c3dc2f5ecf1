// Scalars of a run for TensorBoard (`log.tensorboard`), in addition to events.jsonl: `tensorboard --logdir runs`.
#pragma once

#include <filesystem>
#include <optional>

#include "base/append_file.h"
#include "formats/tensorboard.h"
#include "train/events.h"

namespace ingot::runs {

// One file per process in `folder`. A resumed run invalidates the values that earlier files have for the steps that it
// repeats. Errors as AppendFile's.
class TensorboardLog : public train::Observer {
 public:
  // `first_repeated`: for a continued run, the first step whose events are repeated.
  TensorboardLog(const std::filesystem::path& folder, std::optional<int64_t> first_repeated);

  void on_step(const train::StepEvent& event) override;
  void on_eval(const train::EvalEvent& event) override;

 private:
  AppendFile file_;
};

}  // namespace ingot::runs
