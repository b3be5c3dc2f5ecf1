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
    double busy = 0;          // seconds of computations: without waiting, messages and the update
  };
  std::vector<Rank> ranks;
  double updates_begin = 0;  // when all gradients are complete on all ranks
  double total = 0;          // until the updates end

  // The time before the updates in which a rank computes nothing.
  double idle(int rank) const { return updates_begin - ranks[static_cast<size_t>(rank)].busy; }
};

// Runs the schedule: every rank executes its actions in order. Sends and receives are started and not waited for, but
// for max_sends_under_way; a message begins when both sides have started it (rendezvous) and the messages before it,
// from the same rank to the same other one, have arrived. A computation waits for its message. All updates begin
// together, since they need the norm of all gradients. ErrorKind::internal, naming each waiting rank and its action,
// when no rank can go on, and when two ranks disagree about which message comes next.
PipelineTiming time_pipeline(const PipelineSchedule& schedule, const PipelineDurations& durations);

// The most micro-batches of a chunk whose activations a rank has at once: from a forward to the last backward action of
// it. One of a chunk without trainable parameters in it or before it is forgotten after its forward.
int activation_slots(const PipelineSchedule& schedule, int rank);
// The most messages that a rank holds at once: those that it has started to receive and not used yet, those that it has
// made and not used or sent yet, and those under way.
int message_buffers(const PipelineSchedule& schedule, int rank);
// By micro-batch, the index of a rank's last computation on it in its list.
std::vector<size_t> last_computations(const PipelineSchedule& schedule, int rank);
// The most micro-batches whose data a rank needs at once: from the first computation on one, or on a later one, to the
// last computation on it.
int micro_batches_at_once(const PipelineSchedule& schedule, int rank);

// ErrorKind::internal, naming the rank and the action, unless each micro-batch goes through every virtual stage once
// forward and, from the first trainable one on, once backward (in one action or in two), on the rank that holds it;
// each sum over data-parallel ranks follows all gradients of its chunk; each rank has one update, at the end; and
// time_pipeline() ends.
void check(const PipelineSchedule& schedule);

}  // namespace ingot::spec
