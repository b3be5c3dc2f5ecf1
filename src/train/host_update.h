// The optimizer's update on the host: of parameters whose masters and optimizer state are in host memory
// (`parallel.offload: optimizer`). Their gradients come from the device in chunks, the CPU's ops update masters and
// state, and the new weights go back. While the CPU computes on a chunk, the next one's gradient and the previous one's
// weights are copied, and the device computes with the weights that are there. All copies are in the copy stream.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>

#include "ops/context.h"
#include "tensor/staging.h"
#include "train/action_log.h"
#include "train/optimizer.h"

namespace ingot::train {

struct TrainedParameter;

class HostUpdate {
 public:
  // Elements of a chunk: large enough that copies reach the bus's rate.
  static constexpr int64_t chunk_elements = int64_t{1} << 22;

  // `device` computes the model; `host` is the device of masters and state, whose memory is the host's. Both outlive
  // it.
  HostUpdate(Device& device, Device& host, int64_t chunk = chunk_elements);

  // Page-locked host memory that it takes.
  static size_t bytes(int64_t chunk = chunk_elements);

  // Adds a parameter to those that are to be updated. gradient [elements of its shard] f32, on the device. `layer`: the
  // first that computes with the parameter, ascending from one call to the next. The parameter, its gradient and
  // attributes.decision do not change from begin() until the update is done.
  void add(const TrainedParameter& parameter, const Tensor& gradient, const UpdateAttributes& attributes,
           int64_t layer);
  // The gradients that were added are final after the work submitted so far to the compute stream.
  void begin();
  // Returns when the updates of parameters up to `layer` are done; their weights are there for later work of both
  // streams. The copy of the next gradient has started. `context` is the device's.
  void advance(ops::Context& context, int64_t layer);
  // Forgets pending updates: after an error, or when they are skipped.
  void abandon();
  // What is copied and updated is recorded in `log`, which outlives this or its next call; null: none.
  void set_log(ActionLog* log) { log_ = log; }

  // The parameter's master becomes its weight; the weight becomes its master, rounded.
  void init_master(ops::Context& context, const TrainedParameter& parameter);
  void refresh_weight(ops::Context& context, const TrainedParameter& parameter);

 private:
  struct Chunk {
    const TrainedParameter* parameter = nullptr;  // null: none
    int64_t begin = 0;                            // of the parameter's shard
    Tensor gradient;
    UpdateAttributes attributes;
    int64_t layer = 0;
  };
  // A chunk, and the page-locked memory for it.
  struct Slot {
    PinnedBuffer gradient, weight, decision;
    std::unique_ptr<Event> arrived;  // gradient and decision are there, and `weight` was read
    Chunk chunk;
  };

  ops::Context on_host(const ops::Context& context);
  // Starts the copy of the next chunk in line, and completes the chunk before.
  void step(const ops::Context& context);
  void complete(const ops::Context& context, Slot& slot);
  void log(Action action, const TrainedParameter& parameter, bool begins) const;

  Device& device_;
  Device& host_;
  int64_t chunk_;
  Arena scratch_;  // none: the updates of single elements need no scratch
  std::deque<Chunk> waiting_;
  std::array<Slot, 2> slots_;
  size_t next_ = 0;               // the slot without a chunk; that of the other is being copied
  std::unique_ptr<Event> point_;  // orders one stream after the other
  ActionLog* log_ = nullptr;
};

}  // namespace ingot::train
