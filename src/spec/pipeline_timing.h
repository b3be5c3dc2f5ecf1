// What a pipeline schedule costs: a run of its lists of actions with a virtual clock, the memory it needs, and the
// proof that it can run at all.
#pragma once

#include <vector>

#include "spec/pipeline_schedule.h"

namespace ingot::spec {

// Seconds (or any unit) of the computations of one virtual stage for one micro-batch. `backward` takes backward_input +
// backward_weight.
struct StageDurations {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

struct PipelineDurations {
  std::vector<StageDurations> stages;  // by virtual stage; one entry stands for all
  double message = 0;                  // from the moment that both sides have started it to its arrival
  double reduce = 0;                   // of one chunk, beside computations, one after another
  double update = 0;
};

struct PipelineTiming {
  struct Span {
    double begin = 0, end = 0;
  };
  struct Rank {
    std::vector<Span> steps;  // of each action; sends and receives end when the message has arrived
    double busy = 0;          // seconds of computations, without the update
  };
  std::vector<Rank> ranks;
  double total = 0;  // until the last update ends

  // The time that a rank does not compute in, before the last update begins.
  double idle(int rank) const;
  double update = 0;
};

// Runs the schedule: every rank executes its actions in order. Sends and receives are started and not waited for, but
// for max_sends_under_way; a message begins when both sides have started it (rendezvous) and the messages before it, of
// the same kind between the same two ranks, have arrived. A computation waits for its message. All updates begin
// together, since they need the norm of all gradients. ErrorKind::internal, naming each waiting rank and its action,
// when no rank can go on, and when two ranks disagree about which message comes next.
PipelineTiming time_pipeline(const PipelineSchedule& schedule, const PipelineDurations& durations);

// The most activations that a rank keeps at once, one for each micro-batch of a chunk: from a forward to the last
// backward action of it. A chunk without trainable parameters in it or before it keeps none.
int kept_activations(const PipelineSchedule& schedule, int rank);
// The most messages that a rank has started to receive and not used yet.
int receive_buffers(const PipelineSchedule& schedule, int rank);

// ErrorKind::internal, naming the rank and the action, unless each micro-batch goes through every virtual stage once
// forward and, from the first trainable one on, once backward, on the ranks that hold them; nothing precedes what it
// depends on; each sum over data-parallel ranks follows all gradients of its chunk; and time_pipeline() ends.
void check(const PipelineSchedule& schedule);

}  // namespace ingot::spec
