#include "runs/console.h"

#include <fmt/format.h>

#include "base/strings.h"

namespace ingot::runs {

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
    summary_.finished_before = true;
    log_.info("{}: already finished: {} of {} steps", e.name, e.first_step - 1, e.steps);
    return;
  }
  log_.info("{}: {} of {} parameters trained in {} on {}, steps {} to {}", e.name,
            format_count(static_cast<double>(e.trainable)), format_count(static_cast<double>(e.parameters)),
            e.precision, e.device, e.first_step, e.steps);
  log_.info("{}: {} sequences at once: {}", e.name, e.micro, e.micro_batch_reason);
  if (!e.rates.date.empty()) {
    log_.info("{}: the peak is {:.3f} TFLOP/s and gemms reach {:.3f}, as measured {}", e.name, e.rates.peak / 1e12,
              e.rates.gemm / 1e12, e.rates.date);
  }
  done_ = e.first_step - 1;
  steps_ = e.steps;
}

void Console::on_step(const train::StepEvent& e) {
  if (!progress_) {
    // The time starts here: the evaluation before the first step is not part of the steps' time.
    ProgressOptions options;
    options.style = progress_style(quiet_);
    options.unit = "steps";
    options.start = done_ + 1;
    progress_.emplace("training", steps_, options);
  }
  // The first step includes warm-up: the mean speeds start with the second.
  if (++seen_ == 2) seconds_ = tokens_ = flops_ = 0;
  seconds_ += e.step_s;
  tokens_ += e.tokens_per_s * e.step_s;
  flops_ += 1e12 * e.tflops * e.step_s;
  summary_.mean_tokens_per_s = tokens_ / seconds_;
  padding_ += e.padding;
  summary_.mean_padding = padding_ / static_cast<double>(seen_);
  if (progress_) {
    std::string text = fmt::format("loss {:.4f}  {:.0f} tok/s", e.loss, e.tokens_per_s);
    if (e.shares.mfu) text += fmt::format("  MFU {:.1f} %", 100 * *e.shares.mfu);
    progress_->update(e.step, text);
  }
}

void Console::on_eval(const train::EvalEvent& e) {
  if (!summary_.first_eval && e.step == 0) summary_.first_eval = e;
  summary_.last_eval = e;
  summary_.last_samples.clear();
  log_.info("step {}: held-out loss {:.4f}, perplexity {:.3f} ({} tokens, {})", e.step, e.loss, e.perplexity, e.tokens,
            format_duration(e.seconds));
}

void Console::on_sample(const train::SampleEvent& e) {
  (e.step == 0 ? summary_.first_samples : summary_.last_samples).push_back(e);
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
  summary_.end = e;
  // Relative to the rates at the end: those of the start may have been raised during the run.
  if (seen_ > 0) summary_.mean_mfu = train::Utilisation(e.rates).of({.useful = flops_}, seconds_).shares.mfu;
}

}  // namespace ingot::runs
