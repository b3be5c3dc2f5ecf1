#include "spec/pipeline_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "base/error.h"

namespace ingot::spec {

namespace {

using enum PipelineAction;

bool is_receive(PipelineAction action) { return action == receive_activation || action == receive_gradient; }
bool is_send(PipelineAction action) { return action == send_activation || action == send_gradient; }
bool is_last_backward(PipelineAction action) { return action == backward || action == backward_weight; }

std::string described(const PipelineStep& step) {
  return fmt::format("{} of micro-batch {} in virtual stage {}", name_of(step.action), step.micro_batch,
                     step.virtual_stage);
}

class VirtualClock {
 public:
  VirtualClock(const PipelineSchedule& schedule, const PipelineDurations& durations)
      : schedule_(schedule), durations_(durations), clocks_(schedule.ranks.size()) {
    timing_.ranks.resize(schedule.ranks.size());
  }

  PipelineTiming run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < schedule_.shape.ranks; ++rank) {
        while (advance(rank)) moved = true;
      }
    }
    refuse_deadlock();
    finish();
    return std::move(timing_);
  }

 private:
  // From one rank to another, of activations or of gradients.
  using Channel = std::tuple<int, int, bool>;
  struct Message {
    int virtual_stage = 0;  // that uses it
    int micro_batch = 0;
    std::optional<double> sent, expected;  // when either side started it
    double arrival = 0;
    std::pair<int, size_t> sender, receiver;
  };
  struct Messages {
    std::vector<Message> list;
    size_t sends = 0, receives = 0, arrived = 0;
    double last_arrival = 0;
  };
  using Key = std::tuple<bool, int, int>;  // backward or forward, virtual stage, micro-batch

  const StageDurations& of(int virtual_stage) const {
    return durations_.stages.size() == 1 ? durations_.stages.front()
                                         : durations_.stages[static_cast<size_t>(virtual_stage)];
  }
  double seconds(const PipelineStep& step) const {
    const StageDurations& stage = of(step.virtual_stage);
    switch (step.action) {
      case forward: return stage.forward;
      case backward: return stage.backward_input + stage.backward_weight;
      case backward_input: return stage.backward_input;
      case backward_weight: return stage.backward_weight;
      default: return 0;
    }
  }

  // Executes the next action of a rank if it can start.
  bool advance(int rank) {
    auto& spans = timing_.ranks[static_cast<size_t>(rank)].steps;
    const auto& steps = schedule_.ranks[static_cast<size_t>(rank)];
    if (spans.size() == steps.size()) return false;
    const PipelineStep& step = steps[spans.size()];
    double& clock = clocks_[static_cast<size_t>(rank)];
    if (is_send(step.action) || is_receive(step.action)) {
      Messages& messages = channel_of(rank, step);
      if (is_send(step.action) && messages.sends >= max_sends_under_way) {
        const size_t before = messages.sends - max_sends_under_way;
        if (before >= messages.arrived) return false;
        clock = std::max(clock, messages.list[before].arrival);
      }
      spans.push_back({clock, clock});
      exchange(rank, step, messages, clock);
      return true;
    }
    if (step.action == reduce || step.action == update) {
      spans.push_back({clock, clock});  // finish() sets them
      return true;
    }
    const auto ready = inputs_ready(rank, step);
    if (!ready) return false;
    const double begin = std::max(clock, *ready);
    clock = begin + seconds(step);
    timing_.ranks[static_cast<size_t>(rank)].busy += seconds(step);
    spans.push_back({begin, clock});
    if (step.action != backward_weight) done_[{step.action != forward, step.virtual_stage, step.micro_batch}] = clock;
    return true;
  }

  // When the data of a computation are there; nothing while they are not.
  std::optional<double> inputs_ready(int rank, const PipelineStep& step) const {
    const int stage = step.virtual_stage, last = schedule_.shape.virtual_stages() - 1;
    const auto time_of = [&](const std::map<Key, double>& times, bool is_backward, int at) -> std::optional<double> {
      const auto found = times.find({is_backward, at, step.micro_batch});
      return found == times.end() ? std::nullopt : std::optional(found->second);
    };
    const auto from = [&](bool is_backward, int neighbour) {
      return schedule_.rank_of(neighbour) == rank ? time_of(done_, is_backward, neighbour)
                                                  : time_of(arrivals_, is_backward, stage);
    };
    if (step.action == forward) return stage == 0 ? 0 : from(false, stage - 1);
    if (step.action == backward_weight) return time_of(done_, true, stage);
    const auto own = time_of(done_, false, stage);
    const auto gradient = stage == last ? own : from(true, stage + 1);
    if (!own || !gradient) return std::nullopt;
    return std::max(*own, *gradient);
  }

  static bool is_gradient(const PipelineStep& step) {
    return step.action == send_gradient || step.action == receive_gradient;
  }
  Messages& channel_of(int rank, const PipelineStep& step) {
    return channels_[is_send(step.action) ? Channel{rank, step.peer, is_gradient(step)}
                                          : Channel{step.peer, rank, is_gradient(step)}];
  }

  void exchange(int rank, const PipelineStep& step, Messages& messages, double now) {
    const bool sends = is_send(step.action);
    const bool gradient = is_gradient(step);
    size_t& next = sends ? messages.sends : messages.receives;
    const int user = sends ? step.virtual_stage + (gradient ? -1 : 1) : step.virtual_stage;
    if (next == messages.list.size()) messages.list.push_back({.virtual_stage = user, .micro_batch = step.micro_batch});
    Message& message = messages.list[next++];
    if (message.virtual_stage != user || message.micro_batch != step.micro_batch) {
      throw_error(ErrorKind::internal, "rank {}: {} comes where rank {} has micro-batch {} for virtual stage {}", rank,
                  described(step), step.peer, message.micro_batch, message.virtual_stage);
    }
    (sends ? message.sent : message.expected) = now;
    (sends ? message.sender : message.receiver) = {rank, timing_.ranks[static_cast<size_t>(rank)].steps.size() - 1};
    for (; messages.arrived < messages.list.size(); ++messages.arrived) {
      Message& first = messages.list[messages.arrived];
      if (!first.sent || !first.expected) break;
      first.arrival = messages.last_arrival =
          std::max({*first.sent, *first.expected, messages.last_arrival}) + durations_.message;
      arrivals_[{gradient, first.virtual_stage, first.micro_batch}] = messages.last_arrival;
      for (const auto& [of, index] : {first.sender, first.receiver})
        timing_.ranks[static_cast<size_t>(of)].steps[index].end = messages.last_arrival;
    }
  }

  void refuse_deadlock() const {
    std::string waiting;
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      const size_t at = timing_.ranks[rank].steps.size();
      if (at == schedule_.ranks[rank].size()) continue;
      waiting +=
          fmt::format("{}rank {} at {}", waiting.empty() ? "" : ", ", rank, described(schedule_.ranks[rank][at]));
    }
    if (!waiting.empty()) throw_error(ErrorKind::internal, "the pipeline schedule cannot go on: {}", waiting);
    for (const auto& [channel, messages] : channels_) {
      if (messages.arrived < messages.list.size()) {
        const auto& [from, to, gradient] = channel;
        throw_error(ErrorKind::internal, "a message from rank {} to rank {} of the pipeline never arrives", from, to);
      }
    }
  }

  // Sums over data-parallel ranks, and the updates.
  void finish() {
    double end = 0;
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      double reduced = 0;
      for (size_t i = 0; i < schedule_.ranks[rank].size(); ++i) {
        PipelineTiming::Span& span = timing_.ranks[rank].steps[i];
        if (schedule_.ranks[rank][i].action == reduce) {
          span.begin = std::max(span.begin, reduced);
          span.end = reduced = span.begin + durations_.reduce;
        }
        end = std::max(end, span.end);
      }
    }
    timing_.update = durations_.update;
    timing_.total = end + durations_.update;
    for (PipelineTiming::Rank& rank : timing_.ranks) rank.steps.back() = {end, timing_.total};
  }

  const PipelineSchedule& schedule_;
  const PipelineDurations& durations_;
  PipelineTiming timing_;
  std::vector<double> clocks_;  // by rank: when its last computation ended
  std::map<Channel, Messages> channels_;
  std::map<Key, double> done_;      // when the forward, or the gradient of the input, was computed
  std::map<Key, double> arrivals_;  // by the virtual stage that uses the message
};

}  // namespace

double PipelineTiming::idle(int rank) const { return total - update - ranks[static_cast<size_t>(rank)].busy; }

PipelineTiming time_pipeline(const PipelineSchedule& schedule, const PipelineDurations& durations) {
  const size_t stages = durations.stages.size();
  if (stages != 1 && stages != static_cast<size_t>(schedule.shape.virtual_stages())) {
    throw_error(ErrorKind::internal, "durations of {} virtual stages, and there are {}", stages,
                schedule.shape.virtual_stages());
  }
  return VirtualClock(schedule, durations).run();
}

int kept_activations(const PipelineSchedule& schedule, int rank) {
  int kept = 0, most = 0;
  for (const PipelineStep& step : schedule.ranks[static_cast<size_t>(rank)]) {
    if (step.action == forward && step.virtual_stage >= schedule.shape.first_trainable) most = std::max(most, ++kept);
    if (is_last_backward(step.action)) --kept;
  }
  return most;
}

int receive_buffers(const PipelineSchedule& schedule, int rank) {
  int used = 0, most = 0;
  std::map<std::tuple<bool, int, int>, bool> open;  // gradient or activation, virtual stage, micro-batch
  for (const PipelineStep& step : schedule.ranks[static_cast<size_t>(rank)]) {
    const bool gradient = step.action != receive_activation && step.action != forward;
    const std::tuple key{gradient, step.virtual_stage, step.micro_batch};
    if (is_receive(step.action)) {
      most = std::max(most, ++used);
      open[key] = true;
    } else if (step.action == forward || step.action == backward || step.action == backward_input) {
      if (open.erase(key) > 0) --used;
    }
  }
  return most;
}

void check(const PipelineSchedule& schedule) {
  const auto fail = [](int rank, const PipelineStep& step, std::string_view why) {
    throw_error(ErrorKind::internal, "rank {} of the pipeline schedule, {}: {}", rank, described(step), why);
  };
  const PipelineShape& shape = schedule.shape;
  std::map<std::tuple<int, int, PipelineAction>, int> seen;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    for (const PipelineStep& step : schedule.ranks[static_cast<size_t>(rank)]) {
      if (step.action == update || is_send(step.action) || is_receive(step.action)) continue;
      if (step.virtual_stage < 0 || step.virtual_stage >= shape.virtual_stages() ||
          schedule.rank_of(step.virtual_stage) != rank) {
        fail(rank, step, "another rank holds the virtual stage");
      }
      if (++seen[{step.virtual_stage, step.micro_batch, step.action}] > 1) fail(rank, step, "it comes twice");
      const auto before = [&](PipelineAction action, int micro_batch) {
        return seen.contains({step.virtual_stage, micro_batch, action});
      };
      if (step.action == backward_weight && !before(backward_input, step.micro_batch))
        fail(rank, step, "backward_input does not precede it");
      if (step.action == reduce) {
        for (int i = 0; i < shape.micro_batches; ++i) {
          if (!before(backward, i) && !before(backward_weight, i)) fail(rank, step, "gradients are missing");
        }
      }
    }
    if (schedule.ranks[static_cast<size_t>(rank)].back().action != update)
      throw_error(ErrorKind::internal, "rank {} of the pipeline schedule does not end with the update", rank);
  }
  for (int stage = 0; stage < shape.virtual_stages(); ++stage) {
    const int rank = schedule.rank_of(stage);
    for (int i = 0; i < shape.micro_batches; ++i) {
      if (!seen.contains({stage, i, forward})) fail(rank, {forward, stage, i}, "it is missing");
      const bool whole = seen.contains({stage, i, backward});
      const bool parts = seen.contains({stage, i, backward_input}) && seen.contains({stage, i, backward_weight});
      if (whole == parts && stage >= shape.first_trainable)
        fail(rank, {backward, stage, i}, "it is missing, or double");
    }
    if (stage >= shape.first_trainable && !seen.contains({stage, 0, reduce}))
      fail(rank, {reduce, stage}, "it is missing");
  }
  time_pipeline(schedule, {.stages = {StageDurations{}}});
}

}  // namespace ingot::spec
