#include "app/run_console.h"

#include <fmt/format.h>

#include "base/strings.h"

namespace ingot::app {

void Observers::on_start(const train::StartEvent& e) {
  for (train::Observer* o : all_) o->on_start(e);
}
void Observers::on_step(const train::StepEvent& e) {
  for (train::Observer* o : all_) o->on_step(e);
}
void Observers::on_eval(const train::EvalEvent& e) {
  for (train::Observer* o : all_) o->on_eval(e);
}
void Observers::on_sample(const train::SampleEvent& e) {
  for (train::Observer* o : all_) o->on_sample(e);
}
void Observers::on_checkpoint(const train::CheckpointEvent& e) {
  for (train::Observer* o : all_) o->on_checkpoint(e);
}
void Observers::on_warning(const train::WarningEvent& e) {
  for (train::Observer* o : all_) o->on_warning(e);
}
void Observers::on_end(const train::EndEvent& e) {
  for (train::Observer* o : all_) o->on_end(e);
}

void Console::on_start(const train::StartEvent& e) {
  if (e.first_step > e.steps) {
    memory_.finished_before = true;
    log_.info("{}: is finished: {} of {} steps were made before", e.name, e.first_step - 1, e.steps);
    return;
  }
  log_.info("{}: {} of {} parameters trained in {} on {}, steps {} to {}", e.name,
            format_count(static_cast<double>(e.trained)), format_count(static_cast<double>(e.parameters)), e.precision,
            e.device, e.first_step, e.steps);
  log_.info("{}: {} sequences at once: {}", e.name, e.micro, e.micro_reason);
  memory_.rates = e.rates;
  memory_.rates_date = e.rates_date;
  if (!e.rates_date.empty()) {
    log_.info("{}: the peak is {:.3f} TFLOP/s and matrix products reach {:.3f}, as measured {}", e.name,
              e.rates.peak / 1e12, e.rates.gemm / 1e12, e.rates_date);
  }
  done_ = e.first_step - 1;
  steps_ = e.steps;
}

void Console::on_step(const train::StepEvent& e) {
  if (!progress_) {
    // The clock runs from here: the evaluation before the first step is not the steps' time.
    ProgressOptions options;
    options.style = progress_style(quiet_);
    options.unit = "steps";
    options.start = done_ + 1;
    progress_.emplace("training", steps_, options);
  }
  // The first step also warms up caches and is left out of the means.
  const std::optional<double>& mfu = e.shares.mfu;
  if (first_step_seen_) {
    seconds_ += e.step_s;
    tokens_ += e.tokens_per_s * e.step_s;
    memory_.mean_tokens_per_s = tokens_ / seconds_;
    if (mfu) {
      shared_seconds_ += e.step_s;
      flops_share_ += *mfu * e.step_s;
      memory_.mean_mfu = flops_share_ / shared_seconds_;
    }
  } else {
    memory_.mean_tokens_per_s = e.tokens_per_s;
    memory_.mean_mfu = mfu;
  }
  first_step_seen_ = true;
  padding_ += e.padding;
  memory_.mean_padding = padding_ / static_cast<double>(++seen_);
  if (progress_) {
    std::string text = fmt::format("loss {:.4f}  {:.0f} tok/s", e.loss, e.tokens_per_s);
    if (mfu) text += fmt::format("  MFU {:.1f} %", 100 * *mfu);
    progress_->update(e.step, text);
  }
}

void Console::on_eval(const train::EvalEvent& e) {
  if (!memory_.first_eval && e.step == 0) memory_.first_eval = e;
  memory_.last_eval = e;
  memory_.last_samples.clear();
  log_.info("step {}: held-out loss {:.4f}, perplexity {:.3f} ({} tokens, {})", e.step, e.loss, e.perplexity, e.tokens,
            format_duration(e.seconds));
}

void Console::on_sample(const train::SampleEvent& e) {
  (e.step == 0 ? memory_.first_samples : memory_.last_samples).push_back(e);
  log_.info("step {}: {} ...{}", e.step, e.prompt, e.text);
}

void Console::on_checkpoint(const train::CheckpointEvent& e) {
  log_.info("step {}: checkpoint {} ({}, {}, training paused for {})", e.step, e.path.string(), format_bytes(e.bytes),
            format_duration(e.seconds), format_duration(e.paused));
}

void Console::on_warning(const train::WarningEvent& e) { log_.warning("step {}: {}", e.step, e.message); }

void Console::on_end(const train::EndEvent& e) {
  if (progress_) {
    if (e.reason == "done") progress_->finish();
    progress_.reset();
  }
  memory_.end = e;
}

}  // namespace ingot::app
