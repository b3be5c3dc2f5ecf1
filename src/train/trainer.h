// The training loop: reads data, runs steps, evaluates, writes checkpoints and reports events.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_watch.h"
#include "base/function_ref.h"
#include "base/path.h"
#include "checkpoint/background_upload.h"
#include "data/loader.h"
#include "train/events.h"
#include "train/run_checkpoint.h"
#include "train/schedule.h"
#include "train/step.h"
#include "train/utilisation.h"
#include "train/watch.h"

namespace ingot::train {

struct TrainerSettings {
  std::string name;
  int64_t steps = 0;  // of the whole run
  Schedule schedule;
  int64_t eval_every = 0;        // steps; 0: only before the first and after the last step
  int64_t checkpoint_every = 0;  // steps; 0: only after the last one
  // Minutes after which an additional checkpoint is written, counted from the completion of the last one (or from the
  // call of run()), but not before 20 times the pause that the last one caused; 0: never. It is postponed, with a
  // warning, while the disk of run_dir has not enough free space. Rank 0's clock and disk decide for all ranks.
  double checkpoint_minutes = 0;
  std::function<double()> clock = steady_seconds;  // for checkpoint_minutes and pauses
  std::function<std::optional<uint64_t>(const std::filesystem::path&)> free_bytes = free_disk_bytes;
  int64_t checkpoints_kept = 2;
  bool background_checkpoints = false;  // written from a copy of the state while later steps run
  std::filesystem::path run_dir;
  int64_t traced_steps = 0;  // the first ones of run(), which each rank writes to run_dir/trace/rank-R.json
  // Where checkpoints are uploaded to; outlives the trainer. Set on rank 0 only; null without a remote.
  const checkpoint::RemoteCheckpoints* remote = nullptr;
  std::string identity;  // JSON that a checkpoint must match to be resumed (model, data, adapter, seeds)
  // The files of the mapped weights; outlives the trainer; null when no weights are mapped. If one of these files is
  // modified or truncated, the next evaluation or checkpoint ends the run (corrupt) instead of using its contents.
  const FileWatch* files = nullptr;
  DeviceRates rates;
  // Energy counter, in joules, of this rank's part of the hardware; empty without a meter, nullopt while it has no
  // reading.
  std::function<std::optional<double>()> joules;
  std::function<DeviceRates()> measure_rates;  // measures `rates` again; empty for datasheet rates
};

// All ranks of the step call every function together, each with its own step, model and state; events are observed on
// rank 0 only.
class Trainer {
 public:
  // All references outlive the trainer. `model` is the whole one, `weights` are those of this rank. `eval` may be null.
  // `lora` is the adapter's specification, for counting FLOPs.
  Trainer(Step& step, const spec::ModelSpec& model, const WeightSet& weights, OptimizerState& optimizer_state,
          const std::optional<spec::LoraSpec>& lora, const data::SequenceSet& train, const data::Order& order,
          const data::SequenceSet* eval, TrainerSettings settings, Observer& observer);

  // Resumes from the newest checkpoint of the run directory, after downloading a newer one from settings.remote: reads
  // weights and optimizer state. Returns its step, or 0 when there is none. A run may move to another kind of device;
  // run() then warns that bits differ from there on. ErrorKind::corrupt when the checkpoint is damaged (an older one is
  // never used instead), usage when it belongs to another run than `identity` describes, naming what differs.
  int64_t resume();

  enum class End { done, stopped };
  // Runs to the last step, or until `stop` returns true on any rank before a step; then writes a checkpoint from which
  // the run can be resumed. `on_eval(step)` is called on rank 0 after each evaluation.
  End run(FunctionRef<bool()> stop, FunctionRef<void(int64_t)> on_eval);

  // After run() has thrown `error`: writes the trace of the steps so far, and reports the end of the run. Without
  // communication. Errors: those of writing the files.
  void report_failure(const Error& error);

  // Why the last checkpoint was not uploaded to settings.remote; empty when it was, or without a remote.
  const std::string& upload_error() const { return upload_error_; }

  // The held-out data's mean loss and perplexity with the current weights.
  EvalEvent evaluate(int64_t step);

 private:
  // A step that was enqueued on the device and not finished.
  struct InFlightStep {
    double lr = 0;
    double from = 0;    // steady_seconds() when it began
    double waited = 0;  // Step::waited_s() when it began
    double data = 0;    // seconds it waited for its batch
    data::HostBatch batch;
  };
  void write_trace();
  EndEvent end_event(const char* reason) const;
  bool first() const { return step_.ranks().rank() == 0; }
  // Whether `local` is true on any rank.
  bool any_rank(bool local) const { return step_.ranks().all_max<int32_t>(local ? 1 : 0) != 0; }
  // What all ranks do before the next step.
  enum class NextAction { step, checkpoint, stop };
  NextAction next_action(bool stop);
  bool checkpoint_overdue();  // on rank 0: checkpoint_minutes have passed and the disk has room
  void reserve_copy();
  void require_same_files() const;
  void checkpoint();
  void begin_checkpoint();
  void end_checkpoint();
  int64_t download_checkpoint();
  void upload(int64_t step);
  void report_upload(double seconds);
  uint64_t memory_taken() const;
  void watch_ranks();
  // Whether an action with the interval `every` takes place after step `step`; it needs that step's weights.
  bool due(int64_t every, int64_t step) const { return every > 0 && step % every == 0; }
  bool pauses_after(int64_t step) const;
  void begin(data::Loader& loader);
  void restart_in_flight();  // all of in_flight_
  void finish();
  std::string why_skipped(const StepResult& result, int64_t step, const data::HostBatch& batch);
  // Time and energy of a step on one rank.
  struct RankStepStats {
    RankTime time;
    std::optional<double> joules;
    bool has_meter = false;
  };
  RankStepStats rank_step_stats(const InFlightStep& in_flight, double now);
  void report(const StepResult& result, const InFlightStep& in_flight, double seconds,
              const std::vector<RankStepStats>& ranks);

  Step& step_;
  const spec::ModelSpec& model_;
  const WeightSet& weights_;
  OptimizerState& optimizer_state_;
  const std::optional<spec::LoraSpec>& lora_;
  const data::SequenceSet& train_;
  RankOrder order_;  // this rank's, of train_
  const data::SequenceSet* eval_;
  TrainerSettings settings_;
  Observer& observer_;
  std::vector<spec::LoraParam> adapters_;
  Utilisation utilisation_;
  LossWatch loss_watch_;
  LoaderWatch loader_watch_;
  std::vector<StragglerWatch> straggler_watches_;  // by pipeline stage
  std::optional<double> joules_;                   // settings_.joules() after the last step
  bool first_reported_ = false;         // this process has reported a step; the first one's batch was not prefetched
  std::deque<InFlightStep> in_flight_;  // steps done_ + 1, ...
  std::optional<ActionLog> log_;        // while steps are traced
  int64_t traced_until_ = 0;            // step
  int64_t done_ = 0;                    // completed steps
  int64_t tokens_ = 0;                  // trained on in these steps
  double started_ = 0;                  // steady_seconds() when run() was called
  int64_t tokens_before_ = 0;           // tokens_ then
  BackgroundCheckpoint checkpoint_;
  bool reserved_ = false;                               // checkpoint_.reserve() was called
  int64_t checkpoint_step_ = -1;                        // the step of the newest checkpoint, written or being written
  double checkpoint_time_ = 0;                          // settings_.clock() when the newest checkpoint was complete
  double pause_s_ = 0;                                  // seconds that steps were paused for the newest checkpoint
  uint64_t checkpoint_bytes_ = 0;                       // of the newest checkpoint; before there is one, of its tensors
  bool short_of_disk_ = false;                          // lack of disk space was reported and has lasted since
  double last_finish_ = 0;                              // steady_seconds() when the last completed step finished
  double last_waited_ = 0;                              // Step::waited_s() then
  std::optional<checkpoint::BackgroundUpload> upload_;  // with settings_.remote
  std::string upload_error_;
  std::string downloaded_from_;  // uri of the checkpoint that was downloaded from the remote
  std::string previous_arch_;    // device architecture that the resumed run ran on, if different
};

}  // namespace ingot::train
