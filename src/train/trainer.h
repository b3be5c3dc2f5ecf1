// The training loop: data in, steps, evaluation, checkpoints, events out.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
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
  // One more when so many minutes have passed since the last was there (or since run() was called), and 20 times as
  // long as steps paused for it; 0: none. It is put off, with a warning, while the disk of run_dir has no room for it.
  // Rank 0's clock and view of the disk decide for all.
  double checkpoint_minutes = 0;
  std::function<double()> clock = steady_seconds;  // of checkpoint_minutes and pauses
  std::function<std::optional<uint64_t>(const std::filesystem::path&)> free_bytes = free_disk_bytes;
  int64_t checkpoints_kept = 2;
  bool background_checkpoints = false;  // written from a copy of the state while the steps behind them run
  std::filesystem::path run_dir;
  // Where checkpoints are kept, too, which outlives the trainer; rank 0's, null without.
  const checkpoint::RemoteCheckpoints* remote = nullptr;
  std::string identity;  // JSON: what a checkpoint must agree with to be continued (model, data, adapter, seeds)
  // What the weights lie in that are mapped, which outlives the trainer; null where none are. When one of these files
  // is written to or cut short, the next evaluation or checkpoint ends the run (corrupt), and is not made of what is
  // there.
  const FileWatch* files = nullptr;
  DeviceRates rates;
  // Joules that this rank's part of the hardware has taken since some time; none, or nothing, where it does not tell.
  std::function<std::optional<double>()> joules;
  std::function<DeviceRates()> measure_rates;  // again, where they were measured; none for a datasheet's
};

// The step's ranks call everything together, each with its own step, model and state; observers are told on rank 0.
class Trainer {
 public:
  // Everything referred to outlives the trainer. `weights` are the model's. `eval` may be null. `lora` is what was
  // trained with, for counting FLOPs.
  Trainer(Step& step, models::Model& model, const WeightSet& weights, Trained& trained,
          const std::optional<spec::LoraSpec>& lora, const data::SequenceSet& train, const data::Order& order,
          const data::SequenceSet* eval, TrainerSettings settings, Observer& observer);

  // Continues from the newest checkpoint of the run directory, to which a newer one of settings.remote is brought
  // first: reads weights and optimizer state. Returns its step, or 0 when there is none. A run may move between kinds
  // of devices; run() then warns that bits do not agree from there. ErrorKind::corrupt when it is damaged (an older one
  // is not taken by itself), usage when it is of another run than `identity` says, naming what differs.
  int64_t resume();

  enum class End { done, stopped };
  // Runs to the last step, or until `stop` says so after a step, on any rank; then a checkpoint is written and the run
  // can be resumed. `on_eval(step)` is called on rank 0 after each evaluation, before its samples are wanted.
  End run(FunctionRef<bool()> stop, FunctionRef<void(int64_t)> on_eval);

  // Why the last checkpoint is not in settings.remote; empty when it is, or without one.
  const std::string& not_stored() const { return not_stored_; }

  // Mean held-out loss and perplexity now.
  EvalEvent evaluate(int64_t step);

 private:
  // A step that the device was given and whose result nobody has seen.
  struct Begun {
    double lr = 0;
    double from = 0;    // steady seconds when it began
    double waited = 0;  // seconds that this rank had waited for others until then
    double data = 0;    // seconds it waited for its batch
    data::HostBatch batch;
  };
  bool first() const { return step_.ranks().rank() == 0; }
  // Whether any rank says so.
  bool agreed(bool wish) const { return step_.ranks().all_max<int32_t>(wish ? 1 : 0) != 0; }
  // What is to be done before the next step, by all ranks alike.
  enum class Next { step, checkpoint, stop };
  Next agree(bool stop);
  bool overdue();  // rank 0: a checkpoint by the clock is due, and there is room for it
  void reserve_copy();
  void require_same_files() const;
  void checkpoint();
  void begin_checkpoint();
  void end_checkpoint();
  int64_t bring_checkpoint();
  void upload(int64_t step);
  void tell_upload(double seconds);
  uint64_t memory_taken() const;
  // Whether something is to be done between step `step` and the next that needs the weights as they are then.
  bool due(int64_t every, int64_t step) const { return every > 0 && step % every == 0; }
  bool pauses_after(int64_t step) const;
  void begin(data::Loader& loader);
  void begin_again();  // all of begun_
  void finish();
  std::string why_skipped(const StepResult& result, int64_t step, const data::HostBatch& batch);
  // What the step took on every rank.
  struct Took {
    RankTime time;
    std::optional<double> joules;
    bool has_meter = false;
  };
  Took took(const Begun& begun, double now);
  void tell(const StepResult& result, const Begun& begun, double seconds, const std::vector<Took>& ranks);

  Step& step_;
  models::Model& model_;
  const WeightSet& weights_;
  Trained& trained_;
  const std::optional<spec::LoraSpec>& lora_;
  const data::SequenceSet& train_;
  ShareOrder order_;  // this rank's, of train_
  const data::SequenceSet* eval_;
  TrainerSettings settings_;
  Observer& observer_;
  std::vector<spec::LoraParam> adapters_;
  Utilisation utilisation_;
  LossWatch loss_watch_;
  LoaderWatch loader_watch_;
  std::optional<StragglerWatch> straggler_watch_;
  std::optional<double> joules_;  // settings_.joules() after the last step
  bool first_told_ = false;       // a step of this process: its batch was not made ahead
  std::deque<Begun> begun_;       // steps done_ + 1, ...
  int64_t done_ = 0;              // steps behind us
  int64_t tokens_ = 0;            // of them
  BackgroundCheckpoint checkpoint_;
  bool reserved_ = false;                               // checkpoint_'s memory was asked for
  int64_t written_ = -1;                                // the step of the newest checkpoint, also of one being written
  double written_at_ = 0;                               // settings_.clock() when it was there
  double paused_ = 0;                                   // seconds that steps waited for it
  uint64_t checkpoint_bytes_ = 0;                       // of it; before there is one, of its tensors
  bool short_of_disk_ = false;                          // which was told, and there was no room since
  double seen_ = 0;                                     // steady seconds when the last of them was done
  std::optional<checkpoint::BackgroundUpload> upload_;  // with settings_.remote
  std::string not_stored_;
  std::string brought_;     // the checkpoint that was brought from there
  std::string moved_from_;  // the kind of device that the run was continued from, when this is another
};

}  // namespace ingot::train
