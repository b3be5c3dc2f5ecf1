// What ranks exchange in a step is what step_traffic() says, for every kind of layout.
#include "train/step_traffic.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "tests/train/layouts.h"

namespace ingot::train {
namespace {

using enum spec::PipelineScheduleName;
using spec::Axis;
using spec::Collective;
using spec::Traffic;

std::string text_of(const Traffic& traffic) {
  std::string text;
  for (const auto& [kind, sum] : traffic.sums()) {
    text += fmt::format("{} {}: {} of at most {}, {} bytes\n", name_of(kind.axis), name_of(kind.collective),
                        sum.messages, sum.largest, sum.bytes);
  }
  return text;
}

// `after` without what was before, which `largest` cannot say.
Traffic::Sum since(const Traffic& before, const Traffic& after, Traffic::Kind kind) {
  Traffic::Sum sum = after.sums().at(kind);
  const auto earlier = before.sums().find(kind);
  if (earlier == before.sums().end()) return sum;
  sum.messages -= earlier->second.messages;
  sum.bytes -= earlier->second.bytes;
  return sum;
}

// Trains two steps and compares the second. `in_all`, if not null, gets the sum over all ranks.
void expect_counted(const SmallRun::Settings& settings, const Layout& layout, const std::string& name,
                    Traffic* in_all = nullptr) {
  std::mutex mutex;
  comm::run_in_process({.ranks = layout.ranks(), .timeout_s = 120}, [&](const comm::Group& world) {
    SmallRun::Settings own = laid_out(settings, layout);
    own.ranks = world;
    SmallRun run(own);
    run_step(run, 1);
    const Traffic before = run.step->traffic();
    run_step(run, 2);
    const Traffic& after = run.step->traffic();
    std::vector<std::vector<size_t>> units;
    if (run.sharded) {
      for (const WeightUnit& unit : run.sharded->units()) units.push_back(gathered_bytes(unit));
    }
    const Traffic planned = step_traffic(run.spec, own.lora, own.types, run.step->settings(),
                                         run.optimizer_state->share(), units, sequences, true);
    const std::string where = fmt::format("{}, tp {}, {} stages, dp {}, cp {}, ep {}, zero {}, rank {}\n{}\n{}", name,
                                          layout.tp, layout.stages, layout.dp, layout.cp, layout.ep, layout.zero,
                                          world.rank(), text_of(planned), text_of(after));
    ASSERT_EQ(planned.sums().size(), after.sums().size()) << where;
    const std::lock_guard lock(mutex);
    for (const auto& [kind, sum] : planned.sums()) {
      ASSERT_TRUE(after.sums().contains(kind)) << where;
      EXPECT_EQ(sum, since(before, after, kind)) << where;
      if (in_all != nullptr) in_all->add(kind, sum.bytes / sum.messages, sum.messages);
    }
  });
}

class StepTraffic : public testing::TestWithParam<models::FamilyCase> {};

TEST_P(StepTraffic, IsWhatIsExchanged) {
  SmallRun::Settings settings{.spec = GetParam().spec, .threads = 1};
  std::vector<Layout> layouts = {
      {.tp = 1, .stages = 1, .dp = 2, .zero = 1},
      {.tp = 1, .stages = 1, .dp = 2, .zero = 3, .recompute = spec::Recompute::full, .cp = 2},
      {.tp = 1, .stages = 1, .dp = 1, .zero = 0, .cp = 2, .cp_comm_type = spec::CpCommType::allgather},
      {.tp = 1,
       .stages = 1,
       .dp = 1,
       .zero = 0,
       .recompute = spec::Recompute::full,
       .cp = 3,
       .cp_comm_type = spec::CpCommType::p2p}};
  if (models::can_be_cut(settings.spec, {.pp = 2}))
    layouts.push_back({.tp = 1, .stages = 2, .dp = 1, .zero = 0, .schedule = zb_h1, .cp = 2});
  if (models::can_be_cut(settings.spec, {.tp = 2})) {
    layouts.push_back({.tp = 2, .stages = 1, .dp = 2, .zero = 2, .recompute = spec::Recompute::selective});
    layouts.push_back({.tp = 2, .stages = 1, .dp = 1, .zero = 0, .recompute = spec::Recompute::full});
    layouts.push_back({.tp = 2, .stages = 1, .dp = 1, .zero = 1, .recompute = spec::Recompute::selective});
    layouts.back().sequence_parallel = true;
    layouts.push_back(layouts.back());
    layouts.back().recompute = spec::Recompute::full;
    if (models::can_be_cut(settings.spec, {.tp = 4}))  // with copies of key/value heads in some families
      layouts.push_back({.tp = 4, .stages = 1, .dp = 1, .zero = 0});
    if (models::can_be_cut(settings.spec, {.tp = 2, .pp = 2}))
      layouts.push_back(
          {.tp = 2, .stages = 2, .dp = 1, .zero = 0, .schedule = zb_h1, .recompute = spec::Recompute::full});
  }
  if (models::can_be_cut(settings.spec, {.ep = 2})) {
    layouts.push_back({.tp = 1, .stages = 1, .dp = 4, .zero = 2, .recompute = spec::Recompute::full, .ep = 2});
    layouts.push_back({.tp = 1, .stages = 1, .dp = 4, .zero = 2, .ep = 2, .shard = 2});
    layouts.push_back({.tp = 1, .stages = 1, .dp = 4, .zero = 3, .ep = 2});
    layouts.push_back(
        {.tp = 1, .stages = 1, .dp = 4, .zero = 3, .recompute = spec::Recompute::full, .ep = 2, .shard = 2});
    layouts.push_back({.tp = 1, .stages = 2, .dp = 2, .zero = 1, .schedule = zb_h1, .cp = 2, .ep = 4});
    if (!models::can_be_cut(settings.spec, {.ep = 4})) layouts.back().ep = 2;
    if (models::can_be_cut(settings.spec, {.tp = 2})) {
      layouts.push_back({.tp = 2, .stages = 1, .dp = 2, .zero = 1, .recompute = spec::Recompute::selective, .ep = 2});
      layouts.back().sequence_parallel = true;
    }
  }
  for (const bool adapter : {false, true}) {
    if (adapter) settings.lora = small_lora();
    settings.weights = settings.step.activation = adapter ? DType::bf16 : DType::f32;
    for (const Layout& layout : layouts) {
      if (adapter) settings.lora->dropout = layout.ep > 1 && layout.tp == 1 ? 0.25 : 0;
      // Four blocks use two places: of each, which may be of different sizes, weights are gathered in every step.
      settings.spec = with_blocks(GetParam().spec, layout.zero == 3 && layout.ep > 1 ? 4 : 1);
      expect_counted(settings, layout, fmt::format("{}, {}", GetParam().name, adapter ? "adapter" : "full"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StepTraffic, testing::ValuesIn(models::family_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(StepTraffic, IsWhatEveryScheduleSends) {
  SmallRun::Settings settings{.spec = small_spec(true), .threads = 1};
  settings.spec.layers.resize(8, settings.spec.layers.front());
  for (const auto& [schedule, chunks] : {std::pair(gpipe, 1), std::pair(one_f_one_b, 1), std::pair(interleaved, 2),
                                         std::pair(zb_h1, 1), std::pair(zb_v, 2)}) {
    Traffic in_all;
    const Layout layout{.tp = 1, .stages = 2, .dp = 2, .zero = 1, .schedule = schedule, .chunks = chunks};
    expect_counted(settings, layout, std::string(spec::name_of(schedule)), &in_all);
    // Six sequences cross each cut of two chunks forward and backward.
    const int64_t cuts = schedule == zb_v ? 2 : 2 * chunks - 1;  // in a V the middle chunks are on one rank
    EXPECT_EQ(in_all.sums().at({Axis::pp, Collective::send}).messages, 2 * 6 * cuts) << name_of(schedule);
    Layout sharded = layout;
    sharded.zero = 3;
    sharded.dp = 4;  // of which two have an empty micro-batch
    expect_counted(settings, sharded, fmt::format("{}, ZeRO 3", spec::name_of(schedule)));
  }
}

// Sums in slices; shard groups; ranks without sequences; micro-batches of several units, the last one shorter.
TEST(StepTraffic, IsWhatIsExchangedInOtherSettings) {
  SmallRun::Settings settings{.spec = small_spec(), .threads = 1, .slices = 2};
  settings.types.fixed_point_sums = true;
  settings.step.accumulation_units = sequences;
  const Layout tp{.tp = 2, .stages = 1, .dp = 1, .zero = 0};
  expect_counted(settings, tp, "slices");
  expect_counted(settings, {.tp = 2, .stages = 2, .dp = 1, .zero = 0, .schedule = zb_h1}, "slices");
  expect_counted(settings, {.tp = 2, .stages = 1, .dp = 1, .zero = 3, .recompute = spec::Recompute::full, .cp = 2},
                 "slices");
  Layout rows = tp;
  rows.sequence_parallel = true;
  expect_counted(settings, rows, "slices, sequence parallelism");
  rows = {.tp = 2, .stages = 2, .dp = 1, .zero = 0, .schedule = zb_h1, .recompute = spec::Recompute::full};
  rows.sequence_parallel = true;
  expect_counted(settings, rows, "slices, sequence parallelism");
  for (spec::LayerSpec& layer : settings.spec.layers) layer.attention.kv_heads = 4;
  settings.slices = 4;
  expect_counted(settings, tp, "two slices of a rank");
  settings.lora = small_lora();
  expect_counted(settings, tp, "slices, adapter");
  expect_counted(settings,
                 {.tp = 2, .stages = 2, .dp = 1, .zero = 0, .schedule = zb_h1, .recompute = spec::Recompute::full},
                 "slices, adapter");
  settings = {.spec = small_spec(), .threads = 1};
  settings.step.micro = 4;
  expect_counted(settings, {.tp = 2, .stages = 1, .dp = 1, .zero = 0}, "four sequences");
  expect_counted(settings, {.tp = 1, .stages = 1, .dp = 4, .zero = 3}, "four sequences");
  for (const spec::CpCommType type : {spec::CpCommType::allgather, spec::CpCommType::p2p}) {
    expect_counted(
        settings,
        {.tp = 2, .stages = 1, .dp = 1, .zero = 0, .recompute = spec::Recompute::full, .cp = 3, .cp_comm_type = type},
        "four sequences");
  }
  settings.step.micro = 1;
  settings.shard = 2;
  for (int zero = 1; zero <= 3; ++zero)
    expect_counted(settings, {.tp = 1, .stages = 1, .dp = 4, .zero = zero}, "shard groups");
}

// All blocks in one bucket are one message a step and rank, or one a micro-batch.
TEST(StepTraffic, HasFewerMessagesInLargerBuckets) {
  SmallRun::Settings settings{.spec = small_spec(), .threads = 1};
  settings.bucket_bytes = int64_t{1} << 30;
  const auto messages = [&](int zero, Collective collective) {
    Traffic in_all;
    expect_counted(settings, {.tp = 1, .stages = 1, .dp = 2, .zero = zero}, "joined buckets", &in_all);
    return in_all.sums().at({Axis::dp, collective}).messages;
  };
  EXPECT_EQ(messages(0, Collective::all_reduce), 2);
  EXPECT_EQ(messages(1, Collective::reduce_scatter), 2);
  EXPECT_EQ(messages(1, Collective::all_gather), 2);
  EXPECT_EQ(messages(2, Collective::all_gather), 2);
  settings.bucket_bytes = 0;
  EXPECT_EQ(messages(1, Collective::all_gather), 2 * (settings.spec.num_layers() + 2));
  settings.bucket_bytes = int64_t{1} << 30;
  EXPECT_EQ(messages(2, Collective::reduce_scatter), 2 * sequences / 2);
  settings.lora = small_lora();
  EXPECT_EQ(messages(3, Collective::reduce_scatter), 2 * sequences / 2);
}

}  // namespace
}  // namespace ingot::train
