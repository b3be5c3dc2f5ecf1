// Typed events that a training run reports to an observer. `runs` connects observers to the log, the progress bar,
// events.jsonl, samples and TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "train/utilisation.h"

namespace ingot::train {

// Counts of one data set of the run, after reading.
struct DataCounts {
  int64_t documents = 0;       // usable documents in the files
  int64_t sequences = 0;       // packed sequences
  int64_t bad_lines = 0;       // skipped lines (data.on_error: skip)
  std::string first_bad_line;  // file, line and what is wrong with it; empty when there is none
};

struct StartEvent {
  std::string name;        // of the run
  int64_t first_step = 1;  // the first step this process runs
  int64_t steps = 0;       // of the whole run
  int64_t parameters = 0;  // of the model
  int64_t trainable = 0;   // parameters that are trained, of the model or of the adapter
  std::string device;      // of the first rank
  int64_t ranks = 1;
  std::string precision;
  DeviceRates rates;  // at the start; a CPU's are measured again when a step exceeds them
  bool resumed = false;
  int64_t micro = 0;               // sequences per micro-batch
  std::string micro_batch_reason;  // why this micro-batch size
  DataCounts train, eval;          // eval: zeros without held-out data
};

struct StepEvent {
  int64_t step = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;
  int64_t tokens = 0;       // in all steps of the run so far, without padding
  double tokens_per_s = 0;  // without padding
  double padding = 0;       // fraction of the step's positions that are padding
  double tflops = 0;        // useful FLOPs, causal attention (spec/flops.h)
  Shares shares;
  double step_s = 0;
  uint64_t memory_bytes = 0;       // of the process (peak so far) on a CPU, of the device on a GPU
  double data_s = 0;               // time spent waiting for the batch; the maximum over ranks
  std::optional<double> energy_j;  // since the previous step, summed over ranks; absent without meter readings
  bool skipped = false;            // the gradient was not finite; nothing was updated
};

struct EvalEvent {
  int64_t step = 0;
  double loss = 0;
  double perplexity = 0;
  int64_t tokens = 0;  // loss tokens
  double seconds = 0;
};

struct SampleEvent {
  int64_t step = 0;
  std::string prompt;
  std::string text;
};

struct CheckpointEvent {
  int64_t step = 0;
  std::filesystem::path path;
  uint64_t bytes = 0;
  double seconds = 0;  // from its start until it was published
  double paused = 0;   // part of `seconds` during which no step could run
};

struct WarningEvent {
  int64_t step = 0;
  std::string message;
};

struct EndEvent {
  int64_t step = 0;    // the last completed step
  std::string reason;  // "done", "stopped" or "failed"
  double seconds = 0;
  int64_t tokens = 0;              // processed by this process
  uint64_t peak_memory_bytes = 0;  // not of a failed run, whose device may be the reason
  DeviceRates rates = {};          // the rates in use at the end
  std::string error = {};          // of a failed run: its message
};

// Called on the training thread, in order.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_start(const StartEvent&) {}
  virtual void on_step(const StepEvent&) {}
  virtual void on_eval(const EvalEvent&) {}
  virtual void on_sample(const SampleEvent&) {}
  virtual void on_checkpoint(const CheckpointEvent&) {}
  virtual void on_warning(const WarningEvent&) {}
  virtual void on_end(const EndEvent&) {}
};

}  // namespace ingot::train
