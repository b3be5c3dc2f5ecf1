// Observers of a run: one that forwards to several others, and one that logs and shows progress on standard error.
#pragma once

#include <optional>
#include <vector>

#include "base/log.h"
#include "base/progress.h"
#include "train/events.h"

namespace ingot::runs {

// Forwards every event to several observers, in order.
class Observers : public train::Observer {
 public:
  void add(train::Observer& observer) { all_.push_back(&observer); }
  void on_start(const train::StartEvent& e) override;
  void on_step(const train::StepEvent& e) override;
  void on_eval(const train::EvalEvent& e) override;
  void on_sample(const train::SampleEvent& e) override;
  void on_checkpoint(const train::CheckpointEvent& e) override;
  void on_warning(const train::WarningEvent& e) override;
  void on_end(const train::EndEvent& e) override;

 private:
  std::vector<train::Observer*> all_;
};

// Log lines and the progress bar on standard error. Collects the values for the report at the end of a run.
class Console : public train::Observer {
 public:
  Console(const Log& log, bool quiet) : log_(log), quiet_(quiet) {}
  void on_start(const train::StartEvent& e) override;
  void on_step(const train::StepEvent& e) override;
  void on_eval(const train::EvalEvent& e) override;
  void on_sample(const train::SampleEvent& e) override;
  void on_checkpoint(const train::CheckpointEvent& e) override;
  void on_warning(const train::WarningEvent& e) override;
  void on_end(const train::EndEvent& e) override;

  struct Summary {
    std::optional<train::EvalEvent> first_eval, last_eval;
    std::vector<train::SampleEvent> first_samples, last_samples;
    // Over this process's steps except the first.
    double mean_tokens_per_s = 0;
    std::optional<double> mean_mfu;  // relative to end.rates
    double mean_padding = 0;         // fraction of all computed positions of the steps
    bool finished_before = false;    // an earlier process had completed all steps
    train::EndEvent end;
  };
  const Summary& summary() const { return summary_; }

 private:
  const Log& log_;
  bool quiet_;
  std::optional<Progress> progress_;
  Summary summary_;
  double seconds_ = 0, tokens_ = 0, flops_ = 0, padding_ = 0;
  int64_t seen_ = 0;              // number of steps of this process
  int64_t done_ = 0, steps_ = 0;  // steps before this process, and in total
};

}  // namespace ingot::runs
