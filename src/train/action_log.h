// What one rank does in its steps, in the order in which the host does it: tests read from it what overlaps, and
// `log.trace` writes it in Chrome's trace format. On devices that work asynchronously an action begins and ends when
// the host has enqueued it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ingot::train {

enum class Action {
  forward,   // of a layer: a block of the whole model, -1: before the blocks, their number: after them, with the loss
  backward,  // of a layer
  backward_weight,  // of a virtual stage: the gradients of weights that a pipeline has put off
  reduce,           // of a bucket's gradients over ranks, until the step waits for it
  gather,           // of a unit of weights (ShardedWeights), until it is needed
  gather_updated,   // of a bucket's weights that ranks have updated, until they are needed
  update,           // of a parameter, on the device
  download,         // of a chunk of a parameter's gradient to the host (HostUpdate), until it has arrived
  host_update,      // of that chunk, by the CPU
  upload,           // of its weights, enqueued
};
std::string name_of(Action action);  // "forward", "host update"

class ActionLog {
 public:
  struct Entry {
    Action action = Action::forward;
    int64_t index = 0;  // the layer, bucket, unit or parameter
    bool begins = true;
    double at_s = 0;  // steady_seconds()
  };
  void begin(Action action, int64_t index) { add(action, index, true); }
  void end(Action action, int64_t index) { add(action, index, false); }
  // A pass computes one layer after another: a computation ends the one before.
  void compute(Action action, int64_t layer);
  void end_compute();

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  void add(Action action, int64_t index, bool begins);

  std::vector<Entry> entries_;
  std::optional<std::pair<Action, int64_t>> computes_;
};

// The actions as a JSON object in Chrome's trace format ("Trace Event Format": complete events, in microseconds, and
// the beginnings of those that have not ended), which Perfetto and chrome://tracing show; a process is a rank, and a
// thread one kind of work.
std::string chrome_trace(const ActionLog& log, int rank);

}  // namespace ingot::train
