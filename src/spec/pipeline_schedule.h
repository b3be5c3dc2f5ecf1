// The order of work in pipeline parallelism, as data: for every rank of a pipeline its list of actions in one training
// step. The training step executes the lists; spec/pipeline_timing.h checks and times them.
//
// A model is cut into ranks x chunks *virtual stages* (runs of consecutive blocks); each rank holds `chunks` of them.
// Without interleaving there is one chunk, and virtual stages are ranks.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "spec/model_shard.h"

namespace ingot::spec {

enum class PipelineScheduleName {
  gpipe,        // all forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965)
  one_f_one_b,  // "1f1b": backwards as early as possible (Narayanan et al. 2021, arXiv 2104.04473, section 2.2)
  interleaved,  // 1F1B over several chunks a rank, which shortens the bubble by their number (section 2.2.2)
  // Zero bubble (Qi et al. 2023, arXiv 2401.10241): the gradients of inputs and of weights are separate actions, and
  // the latter fill what would be idle. Both keep at most as many activations as 1F1B's first rank.
  zb_h1,
  zb_v,  // two chunks a rank, placed in a V: the first rank has the first and the last virtual stage
};

// As recipes write it.
std::string_view name_of(PipelineScheduleName name);
// Whether it has backward_input and backward_weight in place of backward.
inline bool separates_weight_gradients(PipelineScheduleName name) {
  return name == PipelineScheduleName::zb_h1 || name == PipelineScheduleName::zb_v;
}

enum class PipelineAction : uint8_t {
  receive_activation,  // starts to receive the input of a forward; the forward waits for it
  forward,
  send_activation,   // starts to send the output of a forward
  receive_gradient,  // as receive_activation, of the gradient of a virtual stage's output
  backward,          // gradients of inputs and of weights
  backward_input,    // gradients of inputs alone, which the virtual stage before waits for
  backward_weight,   // the gradients of weights that backward_input left
  send_gradient,     // starts to send the gradient of a virtual stage's input
  reduce,            // starts to sum the gradients of a chunk over data-parallel ranks; they are complete
  update,            // the optimizer; waits for the sums
};
std::string_view name_of(PipelineAction action);
// Whether it is a forward or one of the kinds of backward.
bool is_computation(PipelineAction action);

struct PipelineStep {
  PipelineAction action = PipelineAction::forward;
  int virtual_stage = 0;  // of this rank: whose input or output it is; 0 for update
  int micro_batch = 0;    // 0 for reduce and update
  int peer = -1;          // of sends and receives: the other rank of the pipeline
  bool operator==(const PipelineStep&) const = default;
};

// What crosses from one virtual stage to the next.
struct PipelineMessage {
  enum class Kind : uint8_t { activation, gradient };
  Kind kind = Kind::activation;
  int virtual_stage = 0;  // that uses it: of an activation the next one, of a gradient the one before
  int micro_batch = 0;
  auto operator<=>(const PipelineMessage&) const = default;
};
// The message that a computation uses, or that a receive gets.
PipelineMessage input_of(const PipelineStep& step);
// The message that a computation makes, or that a send sends.
PipelineMessage output_of(const PipelineStep& step);

// The parts of a model that a rank of a pipeline holds: its virtual stages, in order.
std::vector<ModelShard> pipeline_shards(PipelineScheduleName name, int ranks, int chunks, int rank);

struct PipelineShape {
  int ranks = 1;
  int chunks = 1;  // of each rank
  int micro_batches = 1;
  // The lowest virtual stage with trainable parameters: those before it have no backward, and it sends no gradient.
  // virtual_stages() if there is none: then there are forwards alone, as for an evaluation.
  int first_trainable = 0;

  int virtual_stages() const { return ranks * chunks; }
};

// A send waits until fewer than this many before it, to the same rank, are under way. So a step has a bounded number of
// copies of what it sends; check() proves that no schedule needs more.
inline constexpr int max_sends_under_way = 2;

struct PipelineSchedule {
  PipelineScheduleName name = PipelineScheduleName::one_f_one_b;
  PipelineShape shape;
  std::vector<std::vector<PipelineStep>> ranks;  // by rank, in order

  int rank_of(int virtual_stage) const;
  // The chunk of its rank that a virtual stage is; chunks are in the order of virtual stages.
  int chunk_of(int virtual_stage) const { return virtual_stage / shape.ranks; }
};

// Whether messages pass between the first and the last rank too, as between neighbours.
inline bool is_ring(PipelineScheduleName name) { return name == PipelineScheduleName::interleaved; }

// A pure function of its arguments. Micro-batches are in ascending order everywhere, so gradients are added in the same
// order by every schedule. A rank receives what another sends it, activations and gradients, in the order in which they
// are sent, so that all messages between two ranks in one direction may go by one channel. ErrorKind::usage, naming the
// sizes and what would do, for a shape that the schedule does not have: one chunk for gpipe, 1f1b and zb_h1, at least
// two for interleaved, whose micro-batches are a multiple of the ranks, and exactly two for zb_v.
PipelineSchedule make_pipeline_schedule(PipelineScheduleName name, const PipelineShape& shape);

}  // namespace ingot::spec
