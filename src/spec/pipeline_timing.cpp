#include "spec/pipeline_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
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
  using Channel = std::pair<int, int>;  // from one rank to another
  struct Message {
    PipelineMessage what;
    std::optional<double> sent, expected;  // when either side started it
    double arrival = 0;
    std::pair<int, size_t> sender, receiver;
  };
  struct Messages {
    std::vector<Message> list;
    size_t sends = 0, receives = 0, arrived = 0;
    double last_arrival = 0;
  };
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
    if (step.action != backward_weight) made_[output_of(step)] = clock;
    return true;
  }

  // When the data of a computation are there; nothing while they are not.
  std::optional<double> inputs_ready(int rank, const PipelineStep& step) const {
    const int stage = step.virtual_stage, last = schedule_.shape.virtual_stages() - 1;
    const auto time_of = [](const std::map<PipelineMessage, double>& times,
                            const PipelineMessage& message) -> std::optional<double> {
      const auto found = times.find(message);
      return found == times.end() ? std::nullopt : std::optional(found->second);
    };
    const auto made_by = [&](PipelineAction action) {  // by this virtual stage, of this micro-batch
      return time_of(made_, output_of({action, stage, step.micro_batch}));
    };
    const auto from = [&](int neighbour) {
      return time_of(schedule_.rank_of(neighbour) == rank ? made_ : arrivals_, input_of(step));
    };
    if (step.action == forward) return stage == 0 ? 0 : from(stage - 1);
    if (step.action == backward_weight) return made_by(backward_input);
    const auto own = made_by(forward);
    const auto gradient = stage == last ? own : from(stage + 1);
    if (!own || !gradient) return std::nullopt;
    return std::max(*own, *gradient);
  }

  static PipelineMessage message_of(const PipelineStep& step) {
    return is_send(step.action) ? output_of(step) : input_of(step);
  }
  Messages& channel_of(int rank, const PipelineStep& step) {
    return channels_[is_send(step.action) ? Channel{rank, step.peer} : Channel{step.peer, rank}];
  }

  void exchange(int rank, const PipelineStep& step, Messages& messages, double now) {
    const bool sends = is_send(step.action);
    size_t& next = sends ? messages.sends : messages.receives;
    if (next == messages.list.size()) messages.list.push_back({.what = message_of(step)});
    Message& message = messages.list[next++];
    if (message.what != message_of(step)) {
      throw_error(ErrorKind::internal,
                  "rank {}: {} comes where rank {} has the {} of micro-batch {} for virtual stage {}", rank,
                  described(step), step.peer,
                  message.what.kind == PipelineMessage::Kind::activation ? "activation" : "gradient",
                  message.what.micro_batch, message.what.virtual_stage);
    }
    (sends ? message.sent : message.expected) = now;
    (sends ? message.sender : message.receiver) = {rank, timing_.ranks[static_cast<size_t>(rank)].steps.size() - 1};
    for (; messages.arrived < messages.list.size(); ++messages.arrived) {
      Message& first = messages.list[messages.arrived];
      if (!first.sent || !first.expected) break;
      first.arrival = messages.last_arrival =
          std::max({*first.sent, *first.expected, messages.last_arrival}) + durations_.message;
      arrivals_[first.what] = messages.last_arrival;
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
        throw_error(ErrorKind::internal, "a message from rank {} to rank {} of the pipeline never arrives",
                    channel.first, channel.second);
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
    timing_.updates_begin = end;
    timing_.total = end + durations_.update;
    for (PipelineTiming::Rank& rank : timing_.ranks) rank.steps.back() = {end, timing_.total};
  }

  const PipelineSchedule& schedule_;
  const PipelineDurations& durations_;
  PipelineTiming timing_;
  std::vector<double> clocks_;  // by rank: when its last computation ended
  std::map<Channel, Messages> channels_;
  std::map<PipelineMessage, double> made_;      // when computations made them
  std::map<PipelineMessage, double> arrivals_;  // of those that were sent
};

}  // namespace

PipelineTiming time_pipeline(const PipelineSchedule& schedule, const PipelineDurations& durations) {
  const size_t stages = durations.stages.size();
  if (stages != 1 && stages != static_cast<size_t>(schedule.shape.virtual_stages())) {
    throw_error(ErrorKind::internal, "durations of {} virtual stages, and there are {}", stages,
                schedule.shape.virtual_stages());
  }
  return VirtualClock(schedule, durations).run();
}

int activation_slots(const PipelineSchedule& schedule, int rank) {
  int kept = 0, most = 0;
  for (const PipelineStep& step : schedule.ranks[static_cast<size_t>(rank)]) {
    if (step.action == forward) {
      most = std::max(most, kept + 1);
      if (step.virtual_stage >= schedule.shape.first_trainable) ++kept;
    }
    if (is_last_backward(step.action)) --kept;
  }
  return most;
}

int message_buffers(const PipelineSchedule& schedule, int rank) {
  const auto neighbour = [&](const PipelineMessage& message) {
    return message.virtual_stage >= 0 && message.virtual_stage < schedule.shape.virtual_stages();
  };
  int held = 0, most = 0;
  std::map<int, int> under_way;  // by peer
  for (const PipelineStep& step : schedule.ranks[static_cast<size_t>(rank)]) {
    if (is_receive(step.action)) ++held;
    if (step.action == forward || step.action == backward || step.action == backward_input) {
      const bool has_input =
          step.action == forward ? step.virtual_stage > 0 : neighbour({{}, step.virtual_stage + 1, 0});
      if (has_input) --held;
      const bool is_lowest = step.action != forward && step.virtual_stage <= schedule.shape.first_trainable;
      if (neighbour(output_of(step)) && !is_lowest) ++held;
    }
    if (is_send(step.action)) {
      int& sends = under_way[step.peer];
      if (sends == max_sends_under_way) {
        --held;
      } else {
        ++sends;
      }
    }
    most = std::max(most, held);
  }
  return most;
}

std::vector<size_t> last_computations(const PipelineSchedule& schedule, int rank) {
  const auto& steps = schedule.ranks[static_cast<size_t>(rank)];
  std::vector<size_t> last(static_cast<size_t>(schedule.shape.micro_batches));
  for (size_t i = 0; i < steps.size(); ++i) {
    if (is_computation(steps[i].action)) last[static_cast<size_t>(steps[i].micro_batch)] = i;
  }
  return last;
}

int micro_batches_at_once(const PipelineSchedule& schedule, int rank) {
  const auto& steps = schedule.ranks[static_cast<size_t>(rank)];
  const std::vector<size_t> last = last_computations(schedule, rank);
  int started = 0, first = 0, most = 0;  // micro-batches [first, started) are in use
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!is_computation(steps[i].action)) continue;
    started = std::max(started, steps[i].micro_batch + 1);
    most = std::max(most, started - first);
    while (first < started && last[static_cast<size_t>(first)] <= i) ++first;
  }
  return most;
}

namespace {

// Which computations of each virtual stage and micro-batch came, for check().
class Coverage {
 public:
  explicit Coverage(const PipelineSchedule& schedule) : schedule_(schedule) {}

  void add(int rank, const PipelineStep& step) {
    const PipelineShape& shape = schedule_.shape;
    if (step.virtual_stage < 0 || step.virtual_stage >= shape.virtual_stages() ||
        schedule_.rank_of(step.virtual_stage) != rank) {
      fail(rank, step, "another rank holds the virtual stage");
    }
    if (step.micro_batch < 0 || step.micro_batch >= shape.micro_batches)
      fail(rank, step, "there is no such micro-batch");
    if (step.action != forward && step.virtual_stage < shape.first_trainable)
      fail(rank, step, "the virtual stage has no backward");
    if (!seen_.insert({step.virtual_stage, step.micro_batch, step.action}).second) fail(rank, step, "it comes twice");
    if (step.action == backward_weight && !has(step.virtual_stage, step.micro_batch, backward_input))
      fail(rank, step, "backward_input does not precede it");
    for (int i = 0; step.action == reduce && i < shape.micro_batches; ++i) {
      if (!has(step.virtual_stage, i, backward) && !has(step.virtual_stage, i, backward_weight))
        fail(rank, step, "gradients are missing");
    }
  }

  void require_all() const {
    const PipelineShape& shape = schedule_.shape;
    for (int stage = 0; stage < shape.virtual_stages(); ++stage) {
      const int rank = schedule_.rank_of(stage);
      const bool trainable = stage >= shape.first_trainable;
      for (int i = 0; i < shape.micro_batches; ++i) {
        if (!has(stage, i, forward)) fail(rank, {forward, stage, i}, "it is missing");
        if (!trainable) continue;
        if (has(stage, i, backward) == has(stage, i, backward_input))
          fail(rank, {backward, stage, i}, "it is missing, or there are two");
        if (has(stage, i, backward_input) != has(stage, i, backward_weight))
          fail(rank, {backward_weight, stage, i}, "it is missing");
      }
      if (trainable && !has(stage, 0, reduce)) fail(rank, {reduce, stage}, "it is missing");
    }
  }

  [[noreturn]] static void fail(int rank, const PipelineStep& step, std::string_view why) {
    throw_error(ErrorKind::internal, "rank {} of the pipeline schedule, {}: {}", rank, described(step), why);
  }

 private:
  bool has(int stage, int micro_batch, PipelineAction action) const {
    return seen_.contains({stage, micro_batch, action});
  }

  const PipelineSchedule& schedule_;
  std::set<std::tuple<int, int, PipelineAction>> seen_;  // virtual stage, micro-batch
};

}  // namespace

void check(const PipelineSchedule& schedule) {
  if (std::ssize(schedule.ranks) != schedule.shape.ranks) {
    throw_error(ErrorKind::internal, "the pipeline schedule has {} lists for {} ranks", schedule.ranks.size(),
                schedule.shape.ranks);
  }
  Coverage coverage(schedule);
  for (int rank = 0; rank < schedule.shape.ranks; ++rank) {
    const auto& steps = schedule.ranks[static_cast<size_t>(rank)];
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool ends = i + 1 == steps.size();
      if ((steps[i].action == update) != ends) Coverage::fail(rank, steps[i], "the update is not the last action");
      if (!ends && !is_send(steps[i].action) && !is_receive(steps[i].action)) coverage.add(rank, steps[i]);
    }
    if (steps.empty()) throw_error(ErrorKind::internal, "rank {} of the pipeline schedule has no update", rank);
  }
  coverage.require_all();
  time_pipeline(schedule, {.stages = {StageDurations{}}});
}

}  // namespace ingot::spec
