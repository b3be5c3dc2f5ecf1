// What a run tells while it goes: typed events, handed to an observer. `app` wires observers to the log, the progress
// bar, events.jsonl, samples, and later TensorBoard and MLPerf.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "train/utilisation.h"

namespace ingot::train {

// A data set of the run, as it was read.
struct DataCounts {
  int64_t documents = 0;       // usable ones in the files
  int64_t sequences = 0;       // packed
  int64_t bad_lines = 0;       // left out (data.on_error: skip)
  std::string first_bad_line;  // file, line and what is wrong with it; empty without
};

struct StartEvent {
  std::string name;        // of the run
  int64_t first_step = 1;  // the first step this process runs
  int64_t steps = 0;       // of the whole run
  int64_t parameters = 0;  // of the model
  int64_t trained = 0;     // of them, or of the adapter, trained
  std::string device;      // of the first rank
  int64_t ranks = 1;
  std::string precision;
  DeviceRates rates;  // at the start; a step that is faster has a CPU's measured again
  bool resumed = false;
  int64_t micro = 0;         // sequences computed at once
  std::string micro_reason;  // why so many
  DataCounts train, eval;    // eval: zeros without held-out data
};

struct StepEvent {
  int64_t step = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;
  int64_t tokens = 0;  // so far, over all steps of the run; without padding, as the next
  double tokens_per_s = 0;
  double padding = 0;  // share of what the step computed
  double tflops = 0;   // useful, causal (spec/flops.h)
  Shares shares;
  double step_s = 0;
  uint64_t memory_bytes = 0;       // of the process (peak so far on a CPU), or of the device
  double data_s = 0;               // waited for its batch; of several ranks the longest
  std::optional<double> energy_j;  // since the step before, of all ranks; absent where nothing tells
  bool skipped = false;            // the gradient was not finite
};

struct EvalEvent {
  int64_t step = 0;
  double loss = 0;
  double perplexity = 0;
  int64_t tokens = 0;  // counted
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
  double seconds = 0;  // until it was published
  double paused = 0;   // of them, in which no step ran for its sake
};

struct WarningEvent {
  int64_t step = 0;
  std::string message;
};

struct EndEvent {
  int64_t step = 0;    // the last that was done
  std::string reason;  // "done", "stopped" or "failed"
  double seconds = 0;
  int64_t tokens = 0;  // of this process
  uint64_t peak_memory_bytes = 0;
  DeviceRates rates = {};  // that counted at the end
};

// Called on the thread that trains, in order.
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
