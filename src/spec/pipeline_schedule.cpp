#include "spec/pipeline_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"

namespace ingot::spec {

namespace {

using enum PipelineAction;
using Steps = std::vector<PipelineStep>;

constexpr std::array<std::string_view, 5> names = {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"};

int rank_of_stage(PipelineScheduleName name, int ranks, int virtual_stage) {
  if (name != PipelineScheduleName::zb_v) return virtual_stage % ranks;
  return virtual_stage < ranks ? virtual_stage : 2 * ranks - 1 - virtual_stage;
}

// The computations of one rank, in order.
Steps gpipe(const PipelineShape& shape, int rank) {
  Steps steps;
  for (int i = 0; i < shape.micro_batches; ++i) steps.push_back({forward, rank, i});
  for (int i = 0; i < shape.micro_batches; ++i) steps.push_back({backward, rank, i});
  return steps;
}

// A rank begins with as many forwards as there are ranks from it to the end; then a forward follows every backward.
// zb_h1: rank r runs the weight gradients r micro-batches later, so all ranks keep as many activations as rank 0.
Steps one_f_one_b(const PipelineShape& shape, int rank, bool zero_bubble) {
  Steps steps;
  int forwards = 0, weights = 0;
  const auto next_forward = [&] {
    if (forwards < shape.micro_batches) steps.push_back({forward, rank, forwards++});
  };
  const auto next_weights = [&] { steps.push_back({backward_weight, rank, weights++}); };
  for (int i = rank; i < shape.ranks; ++i) next_forward();
  for (int i = 0; i < shape.micro_batches; ++i) {
    steps.push_back({zero_bubble ? backward_input : backward, rank, i});
    if (zero_bubble && i >= rank) next_weights();
    next_forward();
  }
  while (zero_bubble && weights < shape.micro_batches) next_weights();
  return steps;
}

// Work `number` of the forwards of an interleaved rank: groups of `ranks` micro-batches go through the chunks in turn.
// Backwards are the same with the chunks in descending order.
PipelineStep interleaved_work(const PipelineShape& shape, int rank, int number, bool is_backward) {
  const int group = number / shape.virtual_stages(), within = number % shape.virtual_stages();
  const int turn = within / shape.ranks;
  const int chunk = is_backward ? shape.chunks - 1 - turn : turn;
  return {is_backward ? backward : forward, chunk * shape.ranks + rank, group * shape.ranks + within % shape.ranks};
}

Steps interleaved(const PipelineShape& shape, int rank) {
  const int total = shape.micro_batches * shape.chunks;
  const int ahead = std::min(total, 2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * shape.ranks);
  Steps steps;
  int forwards = 0;
  const auto next_forward = [&] {
    if (forwards < total) steps.push_back(interleaved_work(shape, rank, forwards++, false));
  };
  for (int i = 0; i < ahead; ++i) next_forward();
  for (int i = 0; i < total; ++i) {
    next_forward();
    steps.push_back(interleaved_work(shape, rank, i, true));
  }
  return steps;
}

// zb_v has no closed form: each rank takes the first computation in a fixed order of preference that is possible, in
// rounds in which every action takes the same time. It keeps at most 2 x ranks activations of half a stage: as much
// memory as 1F1B's first rank.
class ZeroBubbleV {
 public:
  explicit ZeroBubbleV(const PipelineShape& shape) : shape_(shape) {
    for (const PipelineAction action : {forward, backward_input, backward_weight})
      done_[action].resize(static_cast<size_t>(shape.virtual_stages()));
  }

  std::vector<Steps> make() {
    std::vector<Steps> ranks(static_cast<size_t>(shape_.ranks));
    const size_t all = 6 * static_cast<size_t>(shape_.micro_batches);
    const auto unfinished = [&](const Steps& steps) { return steps.size() < all; };
    while (std::ranges::any_of(ranks, unfinished)) {
      Steps round;  // decided on what was done before it
      for (int rank = 0; rank < shape_.ranks; ++rank) {
        if (const auto next = next_of(rank)) {
          ranks[static_cast<size_t>(rank)].push_back(*next);
          round.push_back(*next);
        }
      }
      if (round.empty()) throw_error(ErrorKind::internal, "the schedule zb_v cannot go on");
      for (const PipelineStep& step : round) ++done_[step.action][static_cast<size_t>(step.virtual_stage)];
    }
    return ranks;
  }

 private:
  // Micro-batches done.
  int done(PipelineAction action, int stage) const { return done_.at(action)[static_cast<size_t>(stage)]; }
  int kept(int stage) const { return done(forward, stage) - done(backward_weight, stage); }

  std::optional<PipelineStep> next_of(int rank) const {
    const int first = rank, last = 2 * shape_.ranks - 1 - rank;  // virtual stages
    const auto next = [&](PipelineAction action, int stage) {
      return PipelineStep{action, stage, done(action, stage)};
    };
    const bool has_room = kept(first) + kept(last) < 2 * shape_.ranks;
    if (has_room && can_forward(last)) return next(forward, last);
    if (can_backward(first)) return next(backward_input, first);
    if (can_backward(last)) return next(backward_input, last);
    // More would take the room that the last virtual stage needs.
    const int ahead = done(forward, first) - done(forward, last);
    if (has_room && ahead < 2 * (shape_.ranks - rank) && can_forward(first)) return next(forward, first);
    for (const int stage : {last, first}) {
      if (done(backward_weight, stage) < done(backward_input, stage)) return next(backward_weight, stage);
    }
    return std::nullopt;
  }
  bool can_forward(int stage) const {
    const int next = done(forward, stage);
    return next < shape_.micro_batches && (stage == 0 || done(forward, stage - 1) > next);
  }
  bool can_backward(int stage) const {
    const int next = done(backward_input, stage);
    return next < done(forward, stage) &&
           (stage == shape_.virtual_stages() - 1 || done(backward_input, stage + 1) > next);
  }

  const PipelineShape& shape_;
  std::map<PipelineAction, std::vector<int>> done_;  // by virtual stage
};

std::vector<Steps> computations(PipelineScheduleName name, const PipelineShape& shape) {
  if (name == PipelineScheduleName::zb_v) return ZeroBubbleV(shape).make();
  std::vector<Steps> ranks;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    switch (name) {
      case PipelineScheduleName::gpipe: ranks.push_back(gpipe(shape, rank)); break;
      case PipelineScheduleName::one_f_one_b: ranks.push_back(one_f_one_b(shape, rank, false)); break;
      case PipelineScheduleName::interleaved: ranks.push_back(interleaved(shape, rank)); break;
      case PipelineScheduleName::zb_h1: ranks.push_back(one_f_one_b(shape, rank, true)); break;
      case PipelineScheduleName::zb_v: break;
    }
  }
  return ranks;
}

bool is_backward(PipelineAction action) {
  return action == backward || action == backward_input || action == backward_weight;
}

// Whether a computation is left out: those before the first trainable virtual stage have no backward.
bool is_left_out(const PipelineShape& shape, const PipelineStep& step) {
  return is_backward(step.action) && step.virtual_stage < shape.first_trainable;
}

// The send of what a computation makes, if another rank uses it.
std::optional<PipelineStep> send_after(const PipelineSchedule& schedule, const PipelineStep& step) {
  const bool is_forward = step.action == forward;
  const bool makes_gradient = step.action == backward || step.action == backward_input;
  if (!is_forward && (!makes_gradient || step.virtual_stage <= schedule.shape.first_trainable)) return std::nullopt;
  const int user = output_of(step).virtual_stage;
  if (user < 0 || user >= schedule.shape.virtual_stages()) return std::nullopt;
  const int to = schedule.rank_of(user);
  if (to == schedule.rank_of(step.virtual_stage)) return std::nullopt;
  return PipelineStep{is_forward ? send_activation : send_gradient, step.virtual_stage, step.micro_batch, to};
}

// The receives of all messages, by sender and receiver, in the order in which they are sent.
using Receives = std::map<std::pair<int, int>, std::deque<PipelineStep>>;

Receives receives_of(const PipelineSchedule& schedule, const std::vector<Steps>& computations) {
  Receives receives;
  for (const Steps& steps : computations) {
    for (const PipelineStep& step : steps) {
      const std::optional<PipelineStep> send = send_after(schedule, step);
      if (!send) continue;
      const int from = schedule.rank_of(step.virtual_stage);
      const PipelineMessage sent = output_of(*send);
      receives[{from, send->peer}].push_back({send->action == send_activation ? receive_activation : receive_gradient,
                                              sent.virtual_stage, sent.micro_batch, from});
    }
  }
  return receives;
}

// Adds messages, sums and the update to the computations of a rank. The receive for a computation starts before the
// computation that precedes it, so that the message arrives meanwhile; so do those of the messages that the same rank
// sends before it.
class MessageAdder {
 public:
  MessageAdder(const PipelineSchedule& schedule, Receives& receives, int rank)
      : schedule_(schedule), receives_(receives), rank_(rank) {}

  Steps add_to(const Steps& computations) {
    for (size_t i = 0; i < computations.size(); ++i) {
      const PipelineStep& step = computations[i];
      if (i == 0) receive_for(step);
      if (i + 1 < computations.size()) receive_for(computations[i + 1]);
      steps_.push_back(step);
      if (const auto send = send_after(schedule_, step)) steps_.push_back(*send);
      const bool last_micro_batch = step.micro_batch == schedule_.shape.micro_batches - 1;
      if (last_micro_batch && (step.action == backward || step.action == backward_weight))
        steps_.push_back({reduce, step.virtual_stage});
    }
    steps_.push_back({update});
    return std::move(steps_);
  }

 private:
  void receive_for(const PipelineStep& step) {
    if (step.action == backward_weight) return;
    const int from_stage = step.virtual_stage + (step.action == forward ? -1 : 1);
    if (from_stage < 0 || from_stage >= schedule_.shape.virtual_stages()) return;
    const int from = schedule_.rank_of(from_stage);
    if (from == rank_) return;
    std::deque<PipelineStep>& next = receives_[{from, rank_}];
    while (!received_.contains(input_of(step))) {
      if (next.empty()) throw_error(ErrorKind::internal, "rank {} of a pipeline waits for what is not sent", rank_);
      received_.insert(input_of(next.front()));
      steps_.push_back(next.front());
      next.pop_front();
    }
  }

  const PipelineSchedule& schedule_;
  Receives& receives_;
  int rank_;
  std::set<PipelineMessage> received_;
  Steps steps_;
};

void check_shape(PipelineScheduleName name, const PipelineShape& shape) {
  const auto [ranks, chunks, micro_batches, first_trainable] = shape;
  if (ranks < 1 || chunks < 1 || micro_batches < 1) {
    throw_error(ErrorKind::usage, "a pipeline of {} ranks with {} chunks and {} micro-batches; all must be at least 1",
                ranks, chunks, micro_batches);
  }
  if (first_trainable < 0 || first_trainable > shape.virtual_stages()) {
    throw_error(ErrorKind::usage, "virtual stage {} is the lowest trainable one, and there are {}", first_trainable,
                shape.virtual_stages());
  }
  if (name == PipelineScheduleName::interleaved) {
    if (chunks < 2) {
      throw_hint(ErrorKind::usage, "use two chunks or more, or the schedule 1f1b",
                 "the schedule interleaved needs several chunks a rank, not {}", chunks);
    }
    if (micro_batches % ranks != 0) {
      throw_hint(ErrorKind::usage,
                 fmt::format("use {} or {} micro-batches, or another schedule",
                             std::max(1, micro_batches / ranks) * ranks, (micro_batches / ranks + 1) * ranks),
                 "the schedule interleaved needs a multiple of the {} stages as micro-batches, and a step has {}",
                 ranks, micro_batches);
    }
    return;
  }
  const int wanted = name == PipelineScheduleName::zb_v ? 2 : 1;
  if (chunks != wanted) {
    throw_error(ErrorKind::usage, "the schedule {} has {} chunk{} a rank, not {}", name_of(name), wanted,
                wanted == 1 ? "" : "s", chunks);
  }
}

}  // namespace

std::string_view name_of(PipelineScheduleName name) { return names[static_cast<size_t>(name)]; }

bool is_computation(PipelineAction action) { return action == forward || is_backward(action); }

std::string_view name_of(PipelineAction action) {
  switch (action) {
    case receive_activation: return "receive_activation";
    case forward: return "forward";
    case send_activation: return "send_activation";
    case receive_gradient: return "receive_gradient";
    case backward: return "backward";
    case backward_input: return "backward_input";
    case backward_weight: return "backward_weight";
    case send_gradient: return "send_gradient";
    case reduce: return "reduce";
    case update: return "update";
  }
  return "";
}

PipelineMessage input_of(const PipelineStep& step) {
  const bool is_activation = step.action == forward || step.action == receive_activation;
  return {is_activation ? PipelineMessage::Kind::activation : PipelineMessage::Kind::gradient, step.virtual_stage,
          step.micro_batch};
}

PipelineMessage output_of(const PipelineStep& step) {
  const bool is_activation = step.action == forward || step.action == send_activation;
  return {is_activation ? PipelineMessage::Kind::activation : PipelineMessage::Kind::gradient,
          step.virtual_stage + (is_activation ? 1 : -1), step.micro_batch};
}

std::vector<ModelShard> pipeline_shards(PipelineScheduleName name, int ranks, int chunks, int rank) {
  std::vector<ModelShard> shards;
  for (int stage = 0; stage < ranks * chunks; ++stage) {
    if (rank_of_stage(name, ranks, stage) == rank) shards.push_back({.pp = ranks * chunks, .stage = stage});
  }
  return shards;
}

int PipelineSchedule::rank_of(int virtual_stage) const { return rank_of_stage(name, shape.ranks, virtual_stage); }

PipelineSchedule make_pipeline_schedule(PipelineScheduleName name, const PipelineShape& shape) {
  check_shape(name, shape);
  PipelineSchedule schedule{name, shape, {}};
  std::vector<Steps> ranks = computations(name, shape);
  for (Steps& steps : ranks) std::erase_if(steps, [&](const PipelineStep& step) { return is_left_out(shape, step); });
  Receives receives = receives_of(schedule, ranks);
  for (int rank = 0; rank < shape.ranks; ++rank)
    schedule.ranks.push_back(MessageAdder(schedule, receives, rank).add_to(ranks[static_cast<size_t>(rank)]));
  return schedule;
}

}  // namespace ingot::spec
