// Pipeline schedules: every micro-batch through every stage, no deadlock, and the bubbles and activations that the
// papers give.
#include "spec/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "spec/pipeline_timing.h"

namespace ingot::spec {
namespace {

using enum PipelineScheduleName;

PipelineSchedule made(PipelineScheduleName name, int ranks, int micro_batches, int chunks = 1,
                      int first_trainable = 0) {
  return make_pipeline_schedule(
      name, {.ranks = ranks, .chunks = chunks, .micro_batches = micro_batches, .first_trainable = first_trainable});
}

int chunks_of(PipelineScheduleName name) { return name == interleaved || name == zb_v ? 2 : 1; }

std::vector<PipelineScheduleName> all_schedules() { return {gpipe, one_f_one_b, interleaved, zb_h1, zb_v}; }

class PipelineSchedules : public testing::TestWithParam<PipelineScheduleName> {};

TEST_P(PipelineSchedules, RunToTheEnd) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const int micro_batches : {1, ranks, ranks + 1, 2 * ranks, 3 * ranks}) {
      if (GetParam() == interleaved && micro_batches % ranks != 0) continue;
      const int chunks = chunks_of(GetParam());
      for (const int first_trainable : {0, 1, ranks * chunks - 1, ranks * chunks}) {
        EXPECT_NO_THROW(check(made(GetParam(), ranks, micro_batches, chunks, first_trainable)))
            << ranks << " ranks, " << micro_batches << " micro-batches, trainable from " << first_trainable;
      }
    }
  }
}

TEST_P(PipelineSchedules, RanksWithoutTrainableParametersHaveNoBackward) {
  const PipelineSchedule schedule = made(GetParam(), 4, 8, chunks_of(GetParam()), 2);
  for (int rank = 0; rank < 4; ++rank) {
    for (const PipelineStep& step : schedule.ranks[static_cast<size_t>(rank)]) {
      const bool is_forward = step.action == PipelineAction::forward || step.action == PipelineAction::update ||
                              step.action == PipelineAction::send_activation ||
                              step.action == PipelineAction::receive_activation;
      EXPECT_TRUE(is_forward || step.virtual_stage >= 2) << name_of(step.action) << " " << step.virtual_stage;
      if (step.action == PipelineAction::send_gradient) EXPECT_GT(step.virtual_stage, 2);
    }
  }
}

TEST_P(PipelineSchedules, MicroBatchesOfAStageAreInOrder) {
  const PipelineSchedule schedule = made(GetParam(), 4, 8, chunks_of(GetParam()));
  for (const auto action : {PipelineAction::forward, PipelineAction::backward, PipelineAction::backward_input,
                            PipelineAction::backward_weight}) {
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<int> next(static_cast<size_t>(schedule.shape.virtual_stages()));
      for (const PipelineStep& step : schedule.ranks[static_cast<size_t>(rank)]) {
        if (step.action == action) EXPECT_EQ(step.micro_batch, next[static_cast<size_t>(step.virtual_stage)]++);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PipelineSchedules, testing::ValuesIn(all_schedules()),
                         [](const auto& one) { return "_" + std::string(name_of(one.param)); });

// The time of a step beyond that of one rank's computations.
double bubble(const PipelineSchedule& schedule, StageDurations stage) {
  const PipelineTiming timing = time_pipeline(schedule, {.stages = {stage}});
  const double busy = timing.ranks[0].busy;
  for (const PipelineTiming::Rank& rank : timing.ranks) EXPECT_NEAR(rank.busy, busy, 1e-9 * busy);
  return timing.total - busy;
}

const std::vector<StageDurations> durations = {{1, 1, 1}, {2, 3, 1}, {10, 12, 8}};
const std::vector<std::pair<int, int>> ranks_and_micro_batches = {{2, 4}, {4, 8}, {4, 12}, {8, 16}};

TEST(PipelineBubble, OfGpipeAnd1f1bIsThatOfAllStagesButOne) {  // Narayanan et al. 2021, section 2.2
  for (const auto& [p, m] : ranks_and_micro_batches) {
    for (const StageDurations& d : durations) {
      const double one = d.forward + d.backward_input + d.backward_weight;
      EXPECT_NEAR(bubble(made(one_f_one_b, p, m), d), (p - 1) * one, 1e-9) << p << " " << m;
      EXPECT_NEAR(bubble(made(gpipe, p, m), d), (p - 1) * one, 1e-9) << p << " " << m;
    }
  }
}

TEST(PipelineBubble, OfInterleavedIsShorterByTheChunks) {  // section 2.2.2; durations are of one chunk
  for (const int v : {2, 3, 4}) {
    for (const auto& [p, m] : ranks_and_micro_batches) {
      const StageDurations d{1, 1, 1};
      EXPECT_NEAR(bubble(made(interleaved, p, m, v), d), (p - 1) * 3.0, 1e-9) << p << " " << m << " " << v;
    }
  }
}

TEST(PipelineBubble, OfZbH1) {  // Qi et al. 2023, table 2: (p - 1) (T_F + T_B - T_W)
  for (const auto& [p, m] : ranks_and_micro_batches) {
    for (const StageDurations& d : durations) {
      EXPECT_NEAR(bubble(made(zb_h1, p, m), d), (p - 1) * (d.forward + d.backward_input - d.backward_weight), 1e-9)
          << p << " " << m;
    }
  }
}

TEST(PipelineBubble, OfZbVIsTheTimeUntilTheLastRankBegins) {  // no schedule with a joint update has less
  for (const auto& [p, m] : {std::pair(2, 8), std::pair(4, 8), std::pair(4, 16), std::pair(8, 16), std::pair(8, 24)}) {
    EXPECT_NEAR(bubble(made(zb_v, p, m, 2), {1, 1, 1}), p - 1, 1e-9) << p << " " << m;
  }
}

TEST(PipelineBubble, GrowsByTheMessagesOnTheWay) {
  const PipelineSchedule schedule = made(gpipe, 4, 8);
  const double without = time_pipeline(schedule, {.stages = {StageDurations{}}}).total;
  EXPECT_NEAR(time_pipeline(schedule, {.stages = {StageDurations{}}, .message = 0.25}).total, without + 6 * 0.25, 1e-9);
}

TEST(PipelineTimes, AreThoseOfTheSlowestStage) {
  std::vector<StageDurations> stages(4);
  stages[2] = {2, 2, 2};
  const PipelineTiming timing = time_pipeline(made(one_f_one_b, 4, 16), {.stages = stages});
  // The slowest stage's work, and before and after it the stages on the way to it.
  EXPECT_GE(timing.total, 16 * 6 + 2 + 2 * 2);
  EXPECT_LE(timing.total, 16 * 6 + 3 * 3);
  EXPECT_NEAR(timing.idle(2), timing.total - 16 * 6, 1e-9);
  EXPECT_NEAR(timing.idle(0), timing.total - 16 * 3, 1e-9);
}

TEST(PipelineTimes, SumsOfChunksOverlapWithComputations) {
  const PipelineSchedule schedule = made(interleaved, 2, 4, 2);
  const double without = time_pipeline(schedule, {.stages = {StageDurations{}}}).total;
  const PipelineTiming timing = time_pipeline(schedule, {.stages = {StageDurations{}}, .reduce = 1, .update = 5});
  EXPECT_NEAR(timing.total, without + 1 + 5, 1e-9);  // the first chunk's sum alone is not hidden
}

TEST(PipelineMemory, Activations) {
  constexpr int p = 4, m = 16;
  for (int rank = 0; rank < p; ++rank) {
    EXPECT_EQ(activation_slots(made(gpipe, p, m), rank), m);
    EXPECT_EQ(activation_slots(made(one_f_one_b, p, m), rank), p - rank);
    EXPECT_EQ(activation_slots(made(interleaved, p, m, 3), rank), 2 * (p - rank - 1) + 2 * p + 1);
    EXPECT_EQ(activation_slots(made(zb_h1, p, m), rank), p);
    EXPECT_LE(activation_slots(made(zb_v, p, m, 2), rank), 2 * p);  // of half the size
    // Of each kind one that is awaited, and two under way and the next.
    const int neighbours = rank == 0 || rank == p - 1 ? 1 : 2;
    EXPECT_LE(message_buffers(made(one_f_one_b, p, m), rank), 4 * neighbours);
    EXPECT_EQ(micro_batches_at_once(made(one_f_one_b, p, m), rank), p - rank);
    EXPECT_EQ(micro_batches_at_once(made(gpipe, p, m), rank), m);
  }
  EXPECT_EQ(activation_slots(made(one_f_one_b, p, 2), 0), 2);        // as many as there are micro-batches
  EXPECT_EQ(activation_slots(made(one_f_one_b, p, m, 1, 2), 1), 1);  // forgotten after each forward
  EXPECT_EQ(activation_slots(made(interleaved, 2, 4, 2, 2), 0), 3);  // two kept, and one of a frozen chunk
}

TEST(PipelineMessages, CrossEveryBoundaryOnceForwardAndOnceBackward) {
  for (const PipelineScheduleName name : all_schedules()) {
    const PipelineSchedule schedule = made(name, 4, 8, chunks_of(name));
    int sends = 0, receives = 0;
    for (const auto& steps : schedule.ranks) {
      for (const PipelineStep& step : steps) {
        sends += step.action == PipelineAction::send_activation || step.action == PipelineAction::send_gradient;
        receives +=
            step.action == PipelineAction::receive_activation || step.action == PipelineAction::receive_gradient;
      }
    }
    const int turns = name == zb_v ? 1 : 0;  // the boundary of the V's two halves is within a rank
    EXPECT_EQ(sends, 2 * 8 * (schedule.shape.virtual_stages() - 1 - turns));
    EXPECT_EQ(receives, sends);
  }
}

// Activations and gradients together, between every two ranks.
TEST(PipelineMessages, AreReceivedInTheOrderInWhichTheyAreSent) {
  for (const PipelineScheduleName name : all_schedules()) {
    for (const int ranks : {2, 3, 4, 8}) {
      for (const int first_trainable : {0, 1}) {
        const PipelineSchedule schedule = made(name, ranks, 3 * ranks, chunks_of(name), first_trainable);
        std::map<std::pair<int, int>, std::vector<PipelineMessage>> sent, received;  // by sender and receiver
        for (int rank = 0; rank < ranks; ++rank) {
          for (const PipelineStep& step : schedule.ranks[static_cast<size_t>(rank)]) {
            switch (step.action) {
              case PipelineAction::send_activation:
              case PipelineAction::send_gradient: sent[{rank, step.peer}].push_back(output_of(step)); break;
              case PipelineAction::receive_activation:
              case PipelineAction::receive_gradient: received[{step.peer, rank}].push_back(input_of(step)); break;
              default: break;
            }
          }
        }
        EXPECT_EQ(sent, received) << name_of(name) << ", " << ranks << " ranks";
        // Only neighbours, and in a ring the last and the first.
        for (const auto& [channel, messages] : sent) {
          const int apart = std::abs(channel.first - channel.second);
          EXPECT_TRUE(apart == 1 || (is_ring(name) && apart == ranks - 1)) << name_of(name) << ", " << apart;
        }
      }
    }
  }
}

// An activation and a gradient from the same rank, received in the other order.
TEST(PipelineCheck, FindsMessagesOfBothKindsOutOfOrder) {
  PipelineSchedule schedule = made(zb_v, 4, 8, 2);
  auto& steps = schedule.ranks[1];
  const auto first = std::ranges::adjacent_find(steps, [](const PipelineStep& a, const PipelineStep& b) {
    return a.action == PipelineAction::receive_activation && b.action == PipelineAction::receive_gradient &&
           a.peer == b.peer;
  });
  ASSERT_NE(first, steps.end());
  std::swap(*first, *(first + 1));
  try {
    check(schedule);
    FAIL() << "nothing was found";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("comes where rank"), std::string::npos) << error.message();
  }
}

TEST(PipelineCheck, FindsWhatIsWrong) {
  const PipelineSchedule right = made(zb_h1, 3, 6);
  const auto find = [](std::vector<PipelineStep>& steps, PipelineAction action) {
    return std::ranges::find(steps, action, &PipelineStep::action);
  };
  const auto breaks = [&](const std::string& words, auto change) {
    PipelineSchedule schedule = right;
    change(schedule.ranks[1]);
    try {
      check(schedule);
      ADD_FAILURE() << "nothing was found; expected: " << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  using enum PipelineAction;
  check(right);
  breaks("forward of micro-batch 0 in virtual stage 1: it is missing",
         [&](auto& steps) { steps.erase(find(steps, forward)); });
  breaks("gradients are missing", [&](auto& steps) { steps.erase(find(steps, backward_weight)); });
  breaks("comes where rank", [&](auto& steps) { steps.erase(find(steps, receive_activation)); });
  breaks("cannot go on", [&](auto& steps) {
    std::erase_if(steps, [](const PipelineStep& step) { return step.action == receive_activation; });
  });
  breaks("the update is not the last action", [&](auto& steps) { steps.pop_back(); });
  breaks("the update is not the last action", [&](auto& steps) { steps.insert(steps.begin(), steps.back()); });
  breaks("has no update", [&](auto& steps) { steps.clear(); });
  breaks("backward_input does not precede it",
         [&](auto& steps) { steps.insert(steps.begin(), *find(steps, backward_weight)); });
  breaks("gradients are missing", [&](auto& steps) { steps.insert(steps.begin(), *find(steps, reduce)); });
  breaks("another rank holds", [&](auto& steps) { find(steps, forward)->virtual_stage = 2; });
  breaks("it comes twice", [&](auto& steps) { steps.insert(steps.begin(), *find(steps, forward)); });
  breaks("no such micro-batch", [&](auto& steps) { find(steps, forward)->micro_batch = 6; });
  breaks("or there are two", [&](auto& steps) { steps.insert(steps.end() - 1, {backward, 1, 3}); });
  breaks("comes where rank", [&](auto& steps) { steps.erase(find(steps, send_gradient)); });
  // Two forwards in another order: the messages do not match.
  breaks("comes where rank", [&](auto& steps) {
    for (PipelineStep& step : steps) {
      if (step.micro_batch < 2 && step.action != reduce) step.micro_batch = 1 - step.micro_batch;
    }
  });
  PipelineSchedule fewer = right;
  fewer.ranks.pop_back();
  EXPECT_THROW(check(fewer), Error);
  PipelineSchedule frozen = right;
  frozen.shape.first_trainable = 2;
  EXPECT_THROW(check(frozen), Error);
}

TEST(PipelineShapes, ThatDoNotExistAreRefused) {
  EXPECT_THROW(made(gpipe, 0, 1), Error);
  EXPECT_THROW(made(gpipe, 2, 1, 1, 3), Error);
  EXPECT_THROW(made(one_f_one_b, 2, 4, 2), Error);
  EXPECT_THROW(made(interleaved, 2, 4, 1), Error);
  EXPECT_THROW(made(zb_v, 2, 4, 1), Error);
  try {
    made(interleaved, 4, 10, 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("10"), std::string::npos);
  }
}

}  // namespace
}  // namespace ingot::spec
