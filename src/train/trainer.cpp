#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/mapped_range.h"
#include "spec/flops.h"

namespace ingot::train {

namespace fs = std::filesystem;

// Left free beside a checkpoint, for its headers and manifest, which are not counted, and for the run's logs.
constexpr uint64_t reserved_disk_bytes = uint64_t{64} << 20;

Trainer::Trainer(Step& step, const spec::ModelSpec& model, const WeightSet& weights, OptimizerState& optimizer_state,
                 const std::optional<spec::LoraSpec>& lora, const data::SequenceSet& train, const data::Order& order,
                 const data::SequenceSet* eval, TrainerSettings settings, Observer& observer)
    : step_(step),
      model_(model),
      weights_(weights),
      optimizer_state_(optimizer_state),
      lora_(lora),
      train_(train),
      order_(order, step.settings().accumulation_unit, step.grid().data_rank(), step.grid().data_ranks()),
      eval_(eval),
      settings_(std::move(settings)),
      observer_(observer),
      utilisation_(settings_.rates, settings_.measure_rates),
      checkpoint_(step.ranks()) {
  if (lora_) adapters_ = spec::lora_parameters(model_, *lora_);
  if (settings_.remote != nullptr) {
    upload_.emplace(*settings_.remote, settings_.run_dir / "checkpoints", settings_.checkpoints_kept);
  }
}

// Downloads the newest checkpoint if it is newer than the local ones. Returns the newest step in settings.remote; -1
// without one, and on ranks other than 0.
int64_t Trainer::download_checkpoint() {
  int64_t stored = -1;
  std::function<void(const std::atomic<bool>&)> bring;
  if (const checkpoint::RemoteCheckpoints* remote = settings_.remote) {
    bring = [this, remote, &stored](const std::atomic<bool>& wanted) {
      const checkpoint::RemoteCheckpoints::Newest newest = remote->download_newest(
          settings_.run_dir / "checkpoints",
          [&](const std::string& shown, const std::string& metadata) {
            require_same_run(shown, metadata, settings_.identity);
          },
          [&] { return wanted.load(); });
      if (newest.downloaded) downloaded_from_ = remote->uri(*newest.downloaded);
      stored = newest.stored.value_or(-1);
    };
  }
  comm::run_while_synchronising(step_.ranks(), bring);
  return stored;
}

int64_t Trainer::resume() {
  const int64_t stored = download_checkpoint();
  const std::optional<RunProgress> progress = read_run_checkpoint(
      settings_.run_dir / "checkpoints", settings_.identity, optimizer_state_, step_.context().device, step_.ranks());
  if (!progress) return 0;
  step_.refresh_weights();
  done_ = progress->step;
  tokens_ = progress->tokens;
  if (done_ > stored) upload(done_);
  if (progress->arch != step_.context().device.arch()) previous_arch_ = progress->arch;
  return done_;
}

EvalEvent Trainer::evaluate(int64_t step) {
  const double begin = steady_seconds();
  const comm::Grid& grid = step_.grid();
  const int ranks = grid.data_ranks();
  const Range local = rank_sequences(eval_->num_sequences(), 1, grid.data_rank(), ranks);
  constexpr int64_t at_once = 64;  // sequences in memory
  std::vector<double> losses;      // only where Step::evaluate() has them
  int64_t loss_tokens = 0;
  // Ranks make the same calls; the last one has the most sequences.
  const int64_t most = rank_sequences(eval_->num_sequences(), 1, ranks - 1, ranks).count();
  for (int64_t done = 0; done < most; done += at_once) {
    const int64_t from = local.begin + done, end = std::min(from + at_once, local.end);
    std::vector<data::PackedSequence> sequences;
    for (int64_t i = from; i < end; ++i) sequences.push_back(eval_->get(i));
    if (grid.cp.rank() == 0) {
      for (const data::PackedSequence& sequence : sequences) loss_tokens += sequence.loss_tokens;
    }
    std::ranges::copy(step_.evaluate(sequences), std::back_inserter(losses));
  }
  const double sum = step_.sum_in_order(losses);
  loss_tokens = grid.dp.all_sum(loss_tokens);
  require_same_files();
  EvalEvent event;
  event.step = step;
  event.loss = sum / static_cast<double>(loss_tokens);
  event.perplexity = std::exp(event.loss);
  event.tokens = loss_tokens;
  event.seconds = steady_seconds() - begin;
  return event;
}

Trainer::RankStepStats Trainer::rank_step_stats(const InFlightStep& in_flight, double now) {
  RankStepStats stats;
  // A step that began before the last one was finished has had the time since.
  const bool queued = in_flight.from < last_finish_;
  const double begin = queued ? last_finish_ : in_flight.from, waited = queued ? last_waited_ : in_flight.waited;
  stats.time.own_s = now - begin - (step_.waited_s() - waited);
  stats.time.data_s = in_flight.data;
  for (const data::PackedSequence& sequence : in_flight.batch.sequences) stats.time.tokens += std::ssize(sequence.ids);
  stats.has_meter = static_cast<bool>(settings_.joules);
  const std::optional<double> joules = stats.has_meter ? settings_.joules() : std::nullopt;
  if (!joules) return stats;
  if (joules_) stats.joules = *joules - *joules_;
  joules_ = joules;
  return stats;
}

void Trainer::report(const StepResult& result, const InFlightStep& in_flight, double seconds,
                     const std::vector<RankStepStats>& ranks) {
  const spec::AttentionSquares squares{static_cast<double>(result.tokens), result.squared_lengths};
  // Executed FLOPs include padding, except in attention, where padding counts no FLOPs.
  const spec::AttentionSquares computed{static_cast<double>(result.positions), result.squared_lengths};
  // Full-square attention is counted over the whole packed sequence, as other training stacks that count this way do.
  const double length = static_cast<double>(train_.sequence_length());
  const spec::AttentionSquares whole{squares.tokens, squares.tokens * length};
  const auto flops = [&](spec::AttentionSquares s, spec::AttentionCount count) {
    return lora_ ? spec::lora_training_flops(model_, adapters_, s, count) : spec::training_flops(model_, s, count);
  };
  StepWork work;
  work.useful = flops(squares, spec::AttentionCount::causal);
  work.full_square = flops(whole, spec::AttentionCount::full_square);
  work.executed = flops(computed, spec::AttentionCount::causal);
  if (step_.settings().recompute == spec::Recompute::full) {
    work.executed += spec::recompute_flops(model_, computed, spec::AttentionCount::causal);
  }
  const auto [shares, warning] = utilisation_.of(work, seconds);
  StepEvent event;
  event.step = done_;
  event.loss = result.loss;
  event.lr = in_flight.lr;
  event.grad_norm = result.grad_norm;
  event.tokens = tokens_;
  event.tokens_per_s = static_cast<double>(result.tokens) / seconds;
  event.padding = 1 - static_cast<double>(result.tokens) / static_cast<double>(result.positions);
  event.tflops = work.useful / seconds / 1e12;
  event.shares = shares;
  event.step_s = seconds;
  event.memory_bytes = memory_taken();
  event.skipped = result.skipped;
  std::vector<RankTime> times;
  for (const RankStepStats& rank : ranks) {
    times.push_back(rank.time);
    event.data_s = std::max(event.data_s, rank.time.data_s);
  }
  // The energy is known only when every rank that has a meter has a reading.
  const auto silent = [](const RankStepStats& rank) { return rank.has_meter && !rank.joules; };
  if (std::ranges::none_of(ranks, silent)) {
    for (const RankStepStats& rank : ranks) {
      if (rank.joules) event.energy_j = event.energy_j.value_or(0) + *rank.joules;
    }
  }
  check_mapped_files();  // fails if a frozen weight or a sample was read from a faulty map
  observer_.on_step(event);
  const auto warn = [&](const std::string& message) {
    if (!message.empty()) observer_.on_warning({done_, message});
  };
  warn(warning);
  warn(loss_watch_.check(result.loss));
  if (!std::exchange(first_reported_, true)) return;
  warn(loader_watch_.check(event.data_s, seconds));
  const size_t stage_ranks = times.size() / straggler_watches_.size();
  for (size_t stage = 0; stage < straggler_watches_.size(); ++stage) {
    const auto begin = times.begin() + static_cast<int64_t>(stage * stage_ranks);
    warn(straggler_watches_[stage].check({begin, begin + static_cast<int64_t>(stage_ranks)}));
  }
}

// Ranks are compared with those of their own pipeline stage, which have the same work. Stages follow each other in the
// order of ranks.
void Trainer::watch_ranks() {
  std::vector<std::string> names = step_.ranks().gather(host_name());
  for (size_t rank = 0; rank < names.size(); ++rank) names[rank] = fmt::format("rank {} ({})", rank, names[rank]);
  const auto stage_ranks = std::ssize(names) / step_.grid().pp.size();
  straggler_watches_.clear();
  for (auto begin = names.begin(); begin != names.end(); begin += stage_ranks)
    straggler_watches_.emplace_back(std::vector<std::string>(begin, begin + stage_ranks));
}

// All memory of steps is allocated before the first one, so the device memory in use on a GPU is its peak.
uint64_t Trainer::memory_taken() const {
  const Device& device = step_.context().device;
  const bool gpu = device.kind() == DeviceKind::cuda || device.kind() == DeviceKind::hip;
  return gpu ? device.memory_bytes() - device.memory_available() : memory_use().peak;
}

std::string Trainer::why_skipped(const StepResult& result, int64_t step, const data::HostBatch& batch) {
  if (result.loss_tokens == 0) return "no token of this step counts in the loss: update skipped";
  const std::string fault = step_.locate_non_finite(step, batch.sequences, batch.samples, weights_);
  if (fault.empty())
    return "the gradient is not finite: update skipped; when the step was recomputed, every value was finite";
  return fmt::format("the gradient is not finite: update skipped; the first non-finite value came from {}", fault);
}

Trainer::NextAction Trainer::next_action(bool stop) {
  const NextAction wanted = stop                              ? NextAction::stop
                            : first() && checkpoint_overdue() ? NextAction::checkpoint
                                                              : NextAction::step;
  return static_cast<NextAction>(step_.ranks().all_max(static_cast<int32_t>(wanted)));
}

bool Trainer::checkpoint_overdue() {
  if (settings_.checkpoint_minutes <= 0 || done_ <= std::max<int64_t>(checkpoint_step_, 0) || checkpoint_.is_writing())
    return false;
  const double interval = std::max(60 * settings_.checkpoint_minutes, 20 * pause_s_);
  if (settings_.clock() - checkpoint_time_ < interval) return false;
  const std::optional<uint64_t> free = settings_.free_bytes(settings_.run_dir / "checkpoints");
  const bool has_room = !free || *free >= checkpoint_bytes_ + reserved_disk_bytes;
  if (!has_room && !short_of_disk_) {
    observer_.on_warning(
        {done_,
         fmt::format(
             "{}: the disk has {} bytes free, a checkpoint needs {}: checkpoint.minutes is ignored until there is room",
             (settings_.run_dir / "checkpoints").string(), *free, checkpoint_bytes_ + reserved_disk_bytes)});
  }
  short_of_disk_ = !has_room;
  return has_room;
}

// If any rank has no memory for a copy of the state, checkpoints are written between steps.
void Trainer::reserve_copy() {
  if (!settings_.background_checkpoints || std::exchange(reserved_, true)) return;
  std::string shortage;
  try {
    checkpoint_.reserve(optimizer_state_, step_.context());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::resource) throw;
    shortage = error.message();
  }
  settings_.background_checkpoints = !any_rank(!shortage.empty());
  if (settings_.background_checkpoints || !first()) return;
  observer_.on_warning(
      {done_,
       fmt::format(
           "checkpoints are written between steps (training pauses): not enough memory for a copy of the state{}{}",
           shortage.empty() ? "" : ": ", shortage)});
}

void Trainer::require_same_files() const {
  const std::optional<FileFault> fault = settings_.files != nullptr ? settings_.files->fault() : std::nullopt;
  if (!fault) return;
  throw_hint(ErrorKind::corrupt, "put the file back as it was, and continue with --resume", "model file {}: {}",
             fault->file.string(), fault->what);
}

void Trainer::checkpoint() {
  require_same_files();
  const double begin = steady_seconds(), paused_from = settings_.clock();
  const fs::path folder = settings_.run_dir / "checkpoints";
  const uint64_t bytes = write_run_checkpoint(folder, {done_, tokens_}, settings_.identity, optimizer_state_,
                                              step_.context().device, settings_.checkpoints_kept, step_.ranks());
  const double seconds = steady_seconds() - begin;
  checkpoint_step_ = done_;
  checkpoint_time_ = settings_.clock();
  pause_s_ = checkpoint_time_ - paused_from;
  checkpoint_bytes_ = bytes;
  if (!first()) return;
  observer_.on_checkpoint({done_, folder / fmt::format("step-{}", done_), bytes, seconds, pause_s_});
  upload(done_);
}

void Trainer::begin_checkpoint() {
  require_same_files();
  const double paused_from = settings_.clock();
  end_checkpoint();
  checkpoint_.begin(settings_.run_dir / "checkpoints", {done_, tokens_}, settings_.identity, optimizer_state_,
                    step_.context(), settings_.checkpoints_kept);
  checkpoint_step_ = done_;
  pause_s_ = settings_.clock() - paused_from;
}

void Trainer::end_checkpoint() {
  if (!checkpoint_.is_writing()) return;
  const BackgroundCheckpoint::Written written = checkpoint_.wait();
  checkpoint_time_ = settings_.clock();
  checkpoint_bytes_ = written.bytes;
  if (!first()) return;
  observer_.on_checkpoint({written.step, settings_.run_dir / "checkpoints" / fmt::format("step-{}", written.step),
                           written.bytes, written.seconds, pause_s_});
  upload(written.step);
}

void Trainer::upload(int64_t step) {
  if (!upload_) return;
  if (const std::optional<int64_t> left_out = upload_->add(step)) {
    observer_.on_warning(
        {done_, fmt::format("the checkpoint of step {} was not uploaded to {}: that of step {} was due while an "
                            "earlier upload was still running; raise checkpoint.every or checkpoint.minutes",
                            *left_out, settings_.remote->address(), step)});
  }
}

// Reports a finished upload, after waiting at most `seconds` for it.
void Trainer::report_upload(double seconds) {
  if (!upload_) return;
  const std::optional<checkpoint::BackgroundUpload::Result> ended = upload_->poll(seconds);
  if (!ended) return;
  upload_error_ = ended->fault;
  if (ended->fault.empty()) {
    observer_.on_checkpoint({ended->step, settings_.remote->uri(ended->step), ended->bytes, ended->seconds, 0});
    if (ended->cleanup_error.empty()) return;
    observer_.on_warning({done_, fmt::format("the checkpoint of step {} was uploaded to {}, but updating `latest` or "
                                             "removing older checkpoints there failed: {}",
                                             ended->step, settings_.remote->address(), ended->cleanup_error)});
  } else {
    observer_.on_warning({done_, fmt::format("the checkpoint of step {} was not uploaded to {}: {}", ended->step,
                                             settings_.remote->address(), ended->fault)});
  }
}

bool Trainer::pauses_after(int64_t step) const {
  return step == settings_.steps || due(settings_.eval_every, step) || due(settings_.checkpoint_every, step);
}

void Trainer::begin(data::Loader& loader) {
  const double from = steady_seconds();
  const int64_t step = done_ + static_cast<int64_t>(in_flight_.size()) + 1;
  data::HostBatch batch = loader.next();
  in_flight_.push_back(
      {settings_.schedule.at(step), from, step_.waited_s(), steady_seconds() - from, std::move(batch)});
  step_.begin(step, in_flight_.back().lr, in_flight_.back().batch.sequences, in_flight_.back().batch.samples);
}

void Trainer::restart_in_flight() {
  int64_t step = done_;
  for (InFlightStep& again : in_flight_) {
    again.from = steady_seconds();
    again.waited = step_.waited_s();
    step_.begin(++step, again.lr, again.batch.sequences, again.batch.samples);
  }
}

void Trainer::finish() {
  StepResult result = step_.finish();
  while (result.retry) {
    restart_in_flight();
    result = step_.finish();
  }
  const InFlightStep in_flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  ++done_;
  if (log_ && done_ == traced_until_) write_trace();
  tokens_ += result.tokens;
  const double now = steady_seconds();
  const std::vector<RankStepStats> ranks = step_.ranks().gather_one(rank_step_stats(in_flight, now));
  if (first()) report(result, in_flight, now - std::max(in_flight.from, last_finish_), ranks);
  last_finish_ = now;
  last_waited_ = step_.waited_s();
  if (!result.skipped) return;
  const std::string why = why_skipped(result, done_, in_flight.batch);
  if (first()) observer_.on_warning({done_, why});
  if (result.loss_tokens == 0) return;
  restart_in_flight();  // the steps after it updated nothing either
}

void Trainer::write_trace() {
  step_.set_log(nullptr);
  const std::filesystem::path folder = settings_.run_dir / "trace";
  make_folders(folder);
  write_file(folder / fmt::format("rank-{}.json", step_.ranks().rank()), chrome_trace(*log_, step_.ranks().rank()));
  log_.reset();
}

Trainer::End Trainer::run(FunctionRef<bool()> stop, FunctionRef<void(int64_t)> on_eval) {
  started_ = steady_seconds();
  tokens_before_ = tokens_;
  if (settings_.joules) joules_ = settings_.joules();
  watch_ranks();
  const auto evaluate_now = [&] {
    if (!eval_) return;
    const EvalEvent event = evaluate(done_);
    if (!first()) return;
    observer_.on_eval(event);
    on_eval(done_);
  };

  if (!previous_arch_.empty() && first()) {
    observer_.on_warning({done_, fmt::format("continued on {}; earlier steps ran on {}: from here on, results match an "
                                             "uninterrupted run to rounding only, not bit for bit",
                                             step_.context().device.arch(), previous_arch_)});
  }
  if (!downloaded_from_.empty()) {
    observer_.on_warning(
        {done_, fmt::format("continued from {}: events of earlier steps are in the original run folder, not here",
                            downloaded_from_)});
  }
  if (done_ == 0) evaluate_now();
  if (settings_.traced_steps > 0) {
    traced_until_ = done_ + settings_.traced_steps;
    step_.set_log(&log_.emplace());
  }
  End end = End::done;
  checkpoint_step_ = done_ > 0 ? done_ : -1;
  checkpoint_time_ = settings_.clock();
  checkpoint_bytes_ = checkpoint_bytes(optimizer_state_, step_.ranks());
  if (done_ < settings_.steps) {
    const int64_t every = settings_.checkpoint_every;
    // Reserved at once only if a periodic checkpoint is certain: one by the clock may never be written.
    if (every > 0 && done_ / every * every + every < settings_.steps) reserve_copy();
    data::Loader loader(train_, order_, done_);
    // An asynchronous device gets the next step before the host reads the last one's loss. With host-visible memory
    // (CPU), or where ranks synchronise gradients, the host waits for each step; but not where it updates weights while
    // the next step computes.
    const bool waits = step_.context().device.host_visible() ||
                       (step_.ranks().size() > 1 && optimizer_state_.host_update() == nullptr);
    const size_t ahead = waits ? 1 : Step::max_in_flight;
    NextAction next = NextAction::step;
    const auto write = [&] {
      reserve_copy();
      settings_.background_checkpoints ? begin_checkpoint() : checkpoint();
    };
    while (done_ < settings_.steps) {
      while (next == NextAction::step && in_flight_.size() < ahead &&
             (in_flight_.empty() || !pauses_after(done_ + static_cast<int64_t>(in_flight_.size())))) {
        next = next_action(stop());
        if (next == NextAction::step) begin(loader);
      }
      if (!in_flight_.empty()) {
        finish();
        if (checkpoint_.advance()) end_checkpoint();
        report_upload(0);
        if (due(settings_.eval_every, done_) || done_ == settings_.steps) evaluate_now();
        if (due(settings_.checkpoint_every, done_) && done_ < settings_.steps) write();
      }
      if (!in_flight_.empty() || next == NextAction::step) continue;
      if (next == NextAction::stop) break;
      if (checkpoint_step_ != done_ && done_ < settings_.steps) write();
      next = NextAction::step;
    }
    if (next == NextAction::stop) end = End::stopped;
  }
  if (log_) write_trace();
  end_checkpoint();
  if (checkpoint_step_ != done_) checkpoint();
  step_.ranks().barrier();  // all checkpoint files are complete
  while (any_rank(upload_ && upload_->busy())) {
    stop();  // its result is ignored while waiting for the upload, but it may throw
    report_upload(1);
  }
  EndEvent event = end_event(end == End::done ? "done" : "stopped");
  event.peak_memory_bytes = memory_taken();
  if (first()) observer_.on_end(event);
  return end;
}

EndEvent Trainer::end_event(const char* reason) const {
  EndEvent event;
  event.step = done_;
  event.reason = reason;
  event.seconds = steady_seconds() - started_;
  event.tokens = tokens_ - tokens_before_;
  event.rates = utilisation_.rates();
  return event;
}

void Trainer::report_failure(const Error& error) {
  if (log_) write_trace();
  if (!first()) return;
  EndEvent event = end_event("failed");
  event.error = error.message();
  observer_.on_end(event);
}

}  // namespace ingot::train
