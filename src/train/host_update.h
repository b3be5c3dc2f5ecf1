// The optimizer's update on the host: of parameters whose masters and optimizer state are in host memory
// (`parallel.offload: optimizer`). Their gradients come from the device in chunks, the CPU's ops update masters and
// state, and the new weights go back; the next chunk is copied meanwhile.
#pragma once

#include <array>
#include <cstddef>
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

  // Begins the update of a parameter; `gradient` [elements] f32, on the device, and attributes.decision are read in the
  // order of the compute stream, and may change in later work of the stream. `context` is the device's.
  void update(ops::Context& context, const TrainedParameter& parameter, const Tensor& gradient,
              const UpdateAttributes& attributes);
  // Returns when all updates are done; the new weights are there for later work of the compute stream.
  void finish(ops::Context& context);
  // Forgets pending updates, after an error.
  void abandon();
  // What is copied and updated is recorded in `log`, which outlives this or its next call; null: none.
  void set_log(ActionLog* log) { log_ = log; }

  // The parameter's master becomes its weight; the weight becomes its master, rounded.
  void init_master(ops::Context& context, const TrainedParameter& parameter);
  void refresh_weight(ops::Context& context, const TrainedParameter& parameter);

 private:
  // A chunk of a parameter, and the page-locked memory for it.
  struct Slot {
    PinnedBuffer gradient, weight, decision;
    std::unique_ptr<Event> arrived;               // gradient and decision are there, and `weight` was read
    const TrainedParameter* parameter = nullptr;  // null: no pending update
    int64_t begin = 0, end = 0;
    UpdateAttributes attributes;
  };

  ops::Context on_host(const ops::Context& context);
  void complete(const ops::Context& context, Slot& slot);
  void log(Action action, const TrainedParameter& parameter, bool begins) const;

  Device& device_;
  Device& host_;
  int64_t chunk_;
  Arena scratch_;  // none: the updates of single elements need no scratch
  std::array<Slot, 2> slots_;
  size_t next_ = 0;
  ActionLog* log_ = nullptr;
};

}  // namespace ingot::train
