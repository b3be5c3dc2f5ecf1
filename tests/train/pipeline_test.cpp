// A pipeline over ranks gives the bits of the whole model: losses, and gradients summed over micro-batches, for every
// family that can be cut and every schedule, also with tensor-parallel ranks in each stage.
#include "train/pipeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "comm/grid.h"
#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "nn/next_token_loss.h"
#include "ops/registry.h"
#include "spec/pipeline_timing.h"
#include "tensor/tolerance.h"
#include "tests/models/held_weights.h"
#include "tests/train/layouts.h"

namespace ingot::train {
namespace {

using models::HeldWeights;
using models::Values;
using enum spec::PipelineScheduleName;

constexpr int64_t tokens_each = 12;  // of a micro-batch

// The micro-batches of a step, each of two sequences, and their losses.
struct Batches {
  struct One {
    std::vector<int32_t> ids, positions, offsets{0, 5, static_cast<int32_t>(tokens_each)}, targets;
    Values losses = Values(tokens_each);
  };
  std::vector<One> all;

  Batches(const spec::ModelSpec& spec, int count) : all(static_cast<size_t>(count)) {
    RandomStream random(3, 0);
    const auto draw = [&] { return static_cast<int32_t>(random.below(static_cast<uint64_t>(spec.vocab))); };
    for (One& one : all) {
      for (int32_t t = 0; t < tokens_each; ++t) {
        one.ids.push_back(draw());
        one.positions.push_back(t < 5 ? t : t - 5);
        one.targets.push_back(t % 5 == 3 ? -1 : draw());
      }
    }
  }
};

// The chunk of a model that is one virtual stage. Blocks below `lowest` of the whole model, and the embedding if that
// is not 0, are frozen; with `lowest` = number of blocks the head alone is trained.
struct Chunk {
  spec::ModelSpec sizes;
  HeldWeights own;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<models::Sums> sums;
  int64_t blocks_with_backward = 0;

  // Trainable parameters are numbered from `first_index` on.
  Chunk(Device& device, const spec::ModelSpec& spec, const spec::ModelShard& shard, const std::vector<Values>& whole,
        int64_t lowest, int first_index)
      : sizes(spec::sizes_of(spec, shard)),
        own(device, spec, shard, whole),
        model(models::make_model(spec, own.weights, device, shard)),
        sums(std::make_unique<models::Sums>(own.make_sums(device))) {
    for (const spec::HeldParameter& p : own.held) {
      int& index = own.trainable[p.whole];
      index = is_frozen(p.held, lowest) ? -1 : index + first_index;
    }
    const spec::BackwardEnd end = spec::backward_end(spec, shard, lowest);
    model->set_trainable(own.trainable, end.lowest_layer, end.input_gradient);
    blocks_with_backward = sizes.num_layers() - end.lowest_layer;
  }

  static bool is_frozen(const spec::ParamSpec& p, int64_t lowest) {
    return p.layer < 0 ? lowest > 0 && !p.after_blocks : p.layer < lowest;
  }
};

// What a rank computes with: the chunks of a model, with exactly the memory that is predicted.
class Part : public PipelineWork {
 public:
  Part(const spec::ModelSpec& spec, const spec::PipelineSchedule& schedule, const std::vector<Values>& whole,
       const comm::Grid& grid, spec::Recompute recompute, int64_t lowest, Batches& batches, bool visible = true)
      : device_(visible), schedule_(schedule), recompute_(recompute), batches_(batches), tp_(grid.tp) {
    const comm::Group &pp = grid.pp, &tp = grid.tp;
    cpu::register_ops(registry_);
    size_t scratch = 0, saved = 0, shared = 0;
    for (int stage = 0; stage < schedule.shape.virtual_stages(); ++stage) {
      if (schedule.rank_of(stage) != pp.rank()) continue;
      const spec::ModelShard shard{tp.size(), tp.rank(), schedule.shape.virtual_stages(), stage};
      Chunk& chunk = *chunks_.emplace_back(
          std::make_unique<Chunk>(device_, spec, shard, whole, lowest, Sums::first_index(chunks_.size())));
      sums_.chunks.push_back(chunk.sums.get());
      const nn::PassShape shape{.tokens = tokens_each, .longest = tokens_each, .tp = tp.size()};
      const models::PassBytes bytes = models::pass_bytes(chunk.sizes, shape);
      const size_t loss = bytes.loss_gradient + nn::NextTokenLoss::bytes(chunk.sizes, shape, true);
      scratch = std::max({scratch, bytes.forward, loss, bytes.backward});
      const int64_t blocks = chunk.blocks_with_backward;
      const spec::SavedBytes of_chunk = spec::saved_bytes(chunk.sizes, recompute, 4, tokens_each, blocks, shard);
      size_t needed = of_chunk.own;
      shared = std::max(shared, of_chunk.shared);
      if (schedule.name == zb_h1 || schedule.name == zb_v)
        needed += spec::deferred_gradient_bytes(chunk.sizes, recompute, 4, tokens_each, blocks);
      saved = std::max(saved, needed);
    }
    scratch_ = Arena(device_, scratch, "scratch");
    shared_ = Arena(device_, shared, "shared");
    const int slots = spec::activation_slots(schedule, pp.rank());
    for (int i = 0; i < slots; ++i) saved_.emplace_back(device_, saved, "saved");
    std::vector<const models::Model*> parts;
    for (const auto& chunk : chunks_) parts.push_back(chunk->model.get());
    const PipelineMessages messages{spec::message_buffers(schedule, pp.rank()),
                                    Arena::footprint(DType::f32, Shape{tokens_each, spec.hidden})};
    const size_t allocated = device_.allocated(), pinned = device_.pinned();
    pipeline_.emplace(context_, grid, std::move(parts), saved_, shared_, messages);
    EXPECT_EQ(device_.allocated() - allocated, messages.total());
    EXPECT_EQ(device_.pinned() - pinned, visible ? 0 : messages.total());
  }

  void run() { run(schedule_); }
  void run(const spec::PipelineSchedule& schedule) { pipeline_->run(schedule, *this); }

  // The same without a pipeline, of a whole model.
  void run_alone(bool trains) {
    for (int i = 0; i < std::ssize(batches_.all); ++i) {
      nn::Pass one = pass(i, trains);
      models::Slot slot(saved_.front(), shared_);
      chunks_.front()->model->forward(one, slot);
      chunks_.front()->model->loss(one, slot, objective(i));
      if (trains) chunks_.front()->model->backward(one, slot);
    }
  }

  int64_t tokens(int) const override { return tokens_each; }
  void begin(int micro_batch) override { started.push_back(micro_batch); }
  void end(int micro_batch) override { ended.push_back(micro_batch); }
  void computes(const spec::PipelineStep&) override {}
  void skips(const spec::PipelineStep&) override {}
  void computed() override {}
  DType activation() const override { return DType::f32; }
  nn::Pass pass(int micro_batch, bool saves) override {
    Batches::One& one = batches_.all[static_cast<size_t>(micro_batch)];
    token_batch_ = {view(one.ids), view(one.positions), view(one.offsets)};
    nn::Pass pass{.ops = context_, .batch = token_batch_, .tp = {tp_}};
    if (saves) pass.training = &training_;
    return pass;
  }
  const nn::Objective& objective(int micro_batch) override {
    Batches::One& one = batches_.all[static_cast<size_t>(micro_batch)];
    objective_.emplace(Tensor{one.losses.data(), DType::f32, Shape{tokens_each}, &device_}, view(one.targets));
    return *objective_;
  }
  void computed_loss(int) override {}
  void reduce(int chunk) override { reduced.push_back(chunk); }
  void update() override { ++updates; }

  // The gradients of a tied embedding's two uses come one after the other, wherever they are.
  template <class Fn>
  void for_parameters(Fn fn) const {
    for (const auto& chunk : chunks_) {
      const HeldWeights& own = chunk->own;
      for (size_t i = 0; i < own.held.size(); ++i) fn(own.held[i], own.gradients[i]);
      if (!own.lookup.empty()) fn(own.held.front(), own.lookup);
    }
  }

  std::vector<int> started, ended;  // micro-batches
  std::vector<int> reduced;
  int updates = 0;

 private:
  // Those of all chunks, which number their parameters one after another.
  struct Sums : nn::GradientAccumulator {
    static int first_index(size_t chunk) { return static_cast<int>(chunk) * most; }
    models::Sums& of(int trainable) const { return *chunks[static_cast<size_t>(trainable / most)]; }
    bool has(int trainable) const override { return of(trainable).has(trainable % most); }
    Slot open(int trainable, int64_t unit, int use) override { return of(trainable).open(trainable % most, unit, use); }
    void close(int trainable, int64_t unit, int use) override { of(trainable).close(trainable % most, unit, use); }
    static constexpr int most = 10000;  // parameters of a chunk
    std::vector<models::Sums*> chunks;
  };
  Tensor view(std::vector<int32_t>& numbers) {
    return {numbers.data(), DType::i32, Shape{std::ssize(numbers)}, &device_};
  }

  CountingDevice device_;
  ops::Registry registry_;
  ThreadPool threads_{1};
  const spec::PipelineSchedule& schedule_;
  spec::Recompute recompute_;
  Batches& batches_;
  comm::Group tp_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  Arena scratch_, shared_;
  std::vector<Arena> saved_;
  ops::Context context_{device_, registry_, scratch_, &threads_};
  Sums sums_;
  nn::Training training_{.accumulator = sums_, .accumulation_offsets = {0, 5, tokens_each}, .recompute = recompute_};
  nn::TokenBatch token_batch_;
  std::optional<nn::NextTokenLoss> objective_;
  std::optional<Pipeline> pipeline_;
};

// All families, with eight blocks.
std::vector<models::FamilyCase> pipeline_cases() {
  std::vector<models::FamilyCase> list = models::family_cases();
  for (models::FamilyCase& c : list) c.spec = with_blocks(c.spec, 8);
  return list;
}

// The gradients of all parts, by parameter; those of a tied embedding's uses are added.
class Gradients {
 public:
  void add(const Part& part) {
    const std::lock_guard lock(mutex_);
    part.for_parameters([&](const spec::HeldParameter& p, const Values& values) {
      Values& total = all[p.whole];
      if (total.empty()) total.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) total[i] += values[i];
    });
  }
  std::map<size_t, Values> all;

 private:
  std::mutex mutex_;
};

struct Setting {
  spec::PipelineScheduleName name;
  int ranks, chunks, micro_batches;
  spec::Recompute recompute = spec::Recompute::none;
  bool visible = true;  // whether the host can access the devices' memory
};

// The whole model without a pipeline.
struct Whole {
  std::vector<Values> weights;
  std::vector<Values> losses;  // by micro-batch
  Gradients gradients;
  int64_t lowest;  // as of Chunk

  Whole(const spec::ModelSpec& spec, int micro_batches, int64_t its_lowest = 0)
      : weights(models::whole_weights(spec)), lowest(its_lowest) {
    const spec::PipelineSchedule one = spec::make_pipeline_schedule(gpipe, {.micro_batches = 1});
    Batches batches(spec, micro_batches);
    Part part(spec, one, weights, {}, spec::Recompute::none, lowest, batches);
    part.run_alone(true);
    for (const Batches::One& batch : batches.all) losses.push_back(batch.losses);
    gradients.add(part);
  }
};

// The first virtual stage with something to train.
int first_trainable(const spec::ModelSpec& spec, int virtual_stages, int64_t lowest) {
  int stage = 0;
  while (stage + 1 < virtual_stages && spec::blocks_of(spec, {.pp = virtual_stages, .stage = stage}).end <= lowest)
    ++stage;
  return stage;
}

void expect_losses(const Batches& batches, const Whole& whole) {
  ASSERT_EQ(batches.all.size(), whole.losses.size());
  for (size_t i = 0; i < whole.losses.size(); ++i) EXPECT_EQ(batches.all[i].losses, whole.losses[i]) << i;
}

void expect_bits(const spec::ModelSpec& spec, const Whole& whole, const Setting& setting) {
  const int stages = setting.ranks * setting.chunks;
  const int first = first_trainable(spec, stages, whole.lowest);
  SCOPED_TRACE(fmt::format("{}, {} ranks x {}, trainable from stage {}", spec::name_of(setting.name), setting.ranks,
                           setting.chunks, first));
  const spec::PipelineSchedule schedule =
      spec::make_pipeline_schedule(setting.name, {.ranks = setting.ranks,
                                                  .chunks = setting.chunks,
                                                  .micro_batches = setting.micro_batches,
                                                  .first_trainable = first});
  Gradients gradients;
  comm::run_in_process({.ranks = setting.ranks, .timeout_s = 60}, [&](const comm::Group& pp) {
    const comm::Grid grid = comm::make_grid(pp, {.pp = pp.size()});
    Batches batches(spec, setting.micro_batches);
    Part part(spec, schedule, whole.weights, grid, setting.recompute, whole.lowest, batches, setting.visible);
    part.run();
    gradients.add(part);
    EXPECT_EQ(part.updates, 1);
    std::vector<int> all(static_cast<size_t>(setting.micro_batches));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(part.started, all);
    std::ranges::sort(part.ended);
    EXPECT_EQ(part.ended, all);
    // Once for each chunk with something to train in it or before it.
    std::vector<int> trained;
    for (int stage = first; stage < stages; ++stage) {
      if (schedule.rank_of(stage) == pp.rank()) trained.push_back(schedule.chunk_of(stage));
    }
    std::ranges::sort(part.reduced);
    EXPECT_EQ(part.reduced, trained);
    if (schedule.rank_of(stages - 1) == pp.rank()) expect_losses(batches, whole);
  });
  const std::vector<spec::ParamSpec> table = spec::parameters(spec);
  for (size_t i = 0; i < table.size(); ++i) EXPECT_EQ(gradients.all.at(i), whole.gradients.all.at(i)) << table[i].name;
}

class PipelineOfFamily : public testing::TestWithParam<models::FamilyCase> {};

TEST_P(PipelineOfFamily, HasTheBitsOfTheWholeModel) {
  const spec::ModelSpec& spec = GetParam().spec;
  const Whole whole(spec, 4);
  expect_bits(spec, whole, {gpipe, 2, 1, 4, spec::Recompute::selective});
  expect_bits(spec, whole, {one_f_one_b, 4, 1, 4, spec::Recompute::full});
  expect_bits(spec, whole, {interleaved, 2, 2, 4});
  expect_bits(spec, whole, {zb_h1, 4, 1, 4});
  expect_bits(spec, whole, {zb_h1, 2, 1, 4, spec::Recompute::selective});
  expect_bits(spec, whole, {zb_v, 2, 2, 4, spec::Recompute::full});
}

// The lower blocks are frozen: up to the middle of a stage, to its end, and all.
TEST_P(PipelineOfFamily, HasTheBitsOfTheWholeModelWithFrozenBlocks) {
  const spec::ModelSpec& spec = GetParam().spec;
  for (const int64_t lowest : {int64_t{1}, int64_t{3}, int64_t{4}, int64_t{7}, spec.num_layers()}) {
    const Whole whole(spec, 4, lowest);
    expect_bits(spec, whole, {one_f_one_b, 2, 1, 4});
    expect_bits(spec, whole, {interleaved, 2, 2, 4, spec::Recompute::selective});
    expect_bits(spec, whole, {zb_v, 2, 2, 4});
  }
}

// Without anything to train, as in an evaluation.
TEST_P(PipelineOfFamily, HasTheLossesOfTheWholeModelWithoutTraining) {
  const spec::ModelSpec& spec = GetParam().spec;
  const Whole whole(spec, 3);
  const spec::PipelineSchedule schedule =
      spec::make_pipeline_schedule(gpipe, {.ranks = 4, .micro_batches = 3, .first_trainable = 4});
  comm::run_in_process({.ranks = 4, .timeout_s = 60}, [&](const comm::Group& pp) {
    const comm::Grid grid = comm::make_grid(pp, {.pp = pp.size()});
    Batches batches(spec, 3);
    Part part(spec, schedule, whole.weights, grid, spec::Recompute::none, spec.num_layers(), batches);
    part.run();
    if (pp.rank() == 3) expect_losses(batches, whole);
  });
}

class PipelineOfTensorParallelStages : public testing::TestWithParam<models::FamilyCase> {};

TEST_P(PipelineOfTensorParallelStages, EqualsTheWholeModel) {
  const spec::ModelSpec& spec = GetParam().spec;
  const Whole whole(spec, 3);
  const spec::PipelineSchedule schedule = spec::make_pipeline_schedule(one_f_one_b, {.ranks = 2, .micro_batches = 3});
  const std::vector<spec::ParamSpec> table = spec::parameters(spec);
  // The rounding error of sums of this many terms propagates through all blocks, forward and backward.
  const int64_t terms = std::max(spec::longest_row(spec), tokens_each) * 7 * spec.num_layers() * 3;
  const auto tolerated = [&](const Values& expected) {
    double scale = 0;
    for (const float value : expected) scale = std::max(scale, std::abs(static_cast<double>(value)));
    return tolerance(DType::f32, terms) * scale;
  };
  std::array<Gradients, 2> tied;  // of all stages, by tensor-parallel rank
  std::atomic<size_t> compared = 0;
  comm::run_in_process({.ranks = 4, .timeout_s = 60}, [&](const comm::Group& world) {
    const comm::Grid grid = comm::make_grid(world, {.pp = 2, .tp = 2});
    Batches batches(spec, 3);
    Part part(spec, schedule, whole.weights, grid, spec::Recompute::none, 0, batches);
    part.run();
    if (grid.pp.rank() == 1) {
      for (size_t i = 0; i < whole.losses.size(); ++i) {
        for (size_t t = 0; t < whole.losses[i].size(); ++t)
          ASSERT_NEAR(batches.all[i].losses[t], whole.losses[i][t], tolerated(whole.losses[i]));
      }
    }
    if (spec.tied_head) tied[static_cast<size_t>(grid.tp.rank())].add(part);
    part.for_parameters([&](const spec::HeldParameter& p, const Values& computed) {
      ++compared;
      if (spec.tied_head && p.held.role == spec::Role::embedding) return;
      Values values = computed;
      models::sum_over_sharers(p, grid.tp, values);
      const Values& expected = whole.gradients.all.at(p.whole);
      const double most = tolerated(expected);
      models::for_elements(p, table[p.whole], [&](size_t from, size_t to) {
        ASSERT_NEAR(values[to], expected[from], most) << p.held.name << " " << from;
      });
    });
  });
  EXPECT_EQ(compared, 2 * (table.size() + (spec.tied_head ? 1 : 0)));
  if (!spec.tied_head) return;
  const Values& expected = whole.gradients.all.at(0);
  for (size_t rank = 0; rank < tied.size(); ++rank) {
    const spec::ModelShard shard{.tp = 2, .tp_rank = static_cast<int64_t>(rank), .pp = 2};
    const spec::HeldParameter embedding = spec::held_parameters(spec, shard).front();
    models::for_elements(embedding, table[0], [&](size_t from, size_t to) {
      ASSERT_NEAR(tied[rank].all.at(0)[to], expected[from], tolerated(expected)) << from;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PipelineOfFamily, testing::ValuesIn(pipeline_cases()),
                         [](const auto& one) { return one.param.name; });

// Those whose heads can be cut too.
std::vector<models::FamilyCase> tensor_parallel_cases() {
  std::vector<models::FamilyCase> list = pipeline_cases();
  std::erase_if(list, [](const models::FamilyCase& c) { return !models::can_be_cut(c.spec, {.tp = 2, .pp = 2}); });
  return list;
}

INSTANTIATE_TEST_SUITE_P(Families, PipelineOfTensorParallelStages, testing::ValuesIn(tensor_parallel_cases()),
                         [](const auto& one) { return one.param.name; });

TEST(Pipeline, HasTheSameBitsWithEveryScheduleAndNumberOfMicroBatches) {
  const spec::ModelSpec spec = pipeline_cases().front().spec;
  for (const int micro_batches : {1, 3, 8}) {
    const Whole whole(spec, micro_batches);
    for (const spec::PipelineScheduleName name : {gpipe, one_f_one_b, zb_h1}) {
      for (const int ranks : {1, 2, 3}) expect_bits(spec, whole, {name, ranks, 1, micro_batches});
    }
    for (const int ranks : {1, 2, 4}) expect_bits(spec, whole, {zb_v, ranks, 2, micro_batches});
    expect_bits(spec, whole, {zb_v, 2, 2, micro_batches, spec::Recompute::none, false});
    if (micro_batches == 8) expect_bits(spec, whole, {interleaved, 4, 2, 8});
    if (micro_batches == 8) expect_bits(spec, whole, {interleaved, 2, 4, 8});
  }
}

TEST(Pipeline, RefusesWhatDoesNotFitTheSchedule) {
  const spec::ModelSpec spec = pipeline_cases().front().spec;
  const std::vector<Values> weights = models::whole_weights(spec);
  const spec::PipelineSchedule one = spec::make_pipeline_schedule(gpipe, {.micro_batches = 1});
  Batches batches(spec, 2);
  Part part(spec, one, weights, {}, spec::Recompute::none, 0, batches);
  EXPECT_THROW(part.run(spec::make_pipeline_schedule(gpipe, {.ranks = 2, .micro_batches = 1})), Error);
  EXPECT_THROW(part.run(spec::make_pipeline_schedule(interleaved, {.chunks = 2, .micro_batches = 1})), Error);
  EXPECT_THROW(part.run(spec::make_pipeline_schedule(gpipe, {.micro_batches = 2})), Error);  // keeps two
  EXPECT_NO_THROW(part.run());
}

}  // namespace
}  // namespace ingot::train
