// A pipeline over ranks gives the bits of the whole model: losses, and gradients summed over micro-batches, for every
// family that can be cut and every schedule, also with tensor-parallel ranks in each stage.
#include "train/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>

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

namespace ingot::train {
namespace {

using models::HeldWeights;
using models::Values;
using enum spec::PipelineScheduleName;

constexpr int64_t tokens = 12;

// The micro-batches of a step, each of two sequences, and their losses.
struct Batches {
  struct One {
    std::vector<int32_t> ids, positions, offsets{0, 5, static_cast<int32_t>(tokens)}, targets;
    Values losses = Values(tokens);
  };
  std::vector<One> all;

  Batches(const spec::ModelSpec& spec, int count) : all(static_cast<size_t>(count)) {
    RandomStream random(3, 0);
    const auto draw = [&] { return static_cast<int32_t>(random.below(static_cast<uint64_t>(spec.vocab))); };
    for (One& one : all) {
      for (int32_t t = 0; t < tokens; ++t) {
        one.ids.push_back(draw());
        one.positions.push_back(t < 5 ? t : t - 5);
        one.targets.push_back(t % 5 == 3 ? -1 : draw());
      }
    }
  }
};

// What a rank computes with: the chunks of a model, with exactly the memory that is predicted.
class Part : public PipelineWork {
 public:
  Part(const spec::ModelSpec& spec, const spec::PipelineSchedule& schedule, const std::vector<Values>& whole,
       const comm::Group& pp, const comm::Group& tp, spec::Recompute recompute, Batches& batches)
      : recompute_(recompute), batches_(batches), tp_(tp) {
    cpu::register_ops(registry_);
    size_t scratch = 0, saved = 0;
    for (int stage = 0; stage < schedule.shape.virtual_stages(); ++stage) {
      if (schedule.rank_of(stage) != pp.rank()) continue;
      const spec::ModelShard shard{tp.size(), tp.rank(), schedule.shape.virtual_stages(), stage};
      Chunk& chunk = *chunks_.emplace_back(std::make_unique<Chunk>(device_, spec, shard, whole));
      const nn::PassShape shape{.tokens = tokens, .longest = tokens, .tp = tp.size()};
      const models::PassBytes bytes = models::pass_bytes(chunk.sizes, shape);
      const size_t loss = bytes.loss_gradient + nn::NextTokenLoss::bytes(chunk.sizes, shape, true);
      scratch = std::max({scratch, bytes.forward, loss, bytes.backward});
      saved = std::max(saved, spec::saved_bytes(chunk.sizes, recompute, 4, tokens, chunk.sizes.num_layers()));
    }
    scratch_ = Arena(device_, scratch, "scratch");
    const int slots = std::max(1, spec::kept_activations(schedule, pp.rank()));
    for (int i = 0; i < slots; ++i) saved_.emplace_back(device_, saved, "saved");
    std::vector<const models::Model*> parts;
    for (const auto& chunk : chunks_) parts.push_back(chunk->model.get());
    pipeline_.emplace(device_, schedule, pp, std::move(parts), saved_);
  }

  void run() { pipeline_->run(*this); }

  nn::Pass pass(int micro_batch, bool saves) override {
    Batches::One& one = batches_.all[static_cast<size_t>(micro_batch)];
    tokens_[static_cast<size_t>(micro_batch % 2)] = {view(one.ids), view(one.positions), view(one.offsets)};
    nn::Pass pass{.ops = context_, .batch = tokens_[static_cast<size_t>(micro_batch % 2)], .tp = tp_};
    if (saves) pass.training = &training_;
    return pass;
  }
  const nn::Objective& objective(int micro_batch) override {
    Batches::One& one = batches_.all[static_cast<size_t>(micro_batch)];
    // The head's gradients belong to the last chunk.
    sums_.current = chunks_.back()->sums.get();
    objective_.emplace(Tensor{one.losses.data(), DType::f32, Shape{tokens}, &device_}, view(one.targets));
    return *objective_;
  }
  void begin_backward(int chunk, int) override { sums_.current = chunks_[static_cast<size_t>(chunk)]->sums.get(); }
  void end_backward(int, int) override {}
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

  std::vector<int> reduced;
  int updates = 0;

 private:
  struct Chunk {
    spec::ModelSpec sizes;
    HeldWeights own;
    std::unique_ptr<models::Model> model;
    std::unique_ptr<models::Sums> sums;
    Chunk(Device& device, const spec::ModelSpec& spec, const spec::ModelShard& shard, const std::vector<Values>& whole)
        : sizes(spec::sizes_of(spec, shard)),
          own(device, spec, shard, whole),
          model(models::make_model(spec, own.weights, device, shard)),
          sums(std::make_unique<models::Sums>(own.make_sums(device))) {
      model->set_trainable(own.trainable, 0);
    }
  };
  // Of the chunk that runs backward.
  struct CurrentSums : nn::GradientAccumulator {
    bool has(int trainable) const override { return current->has(trainable); }
    Slot open(int trainable, int64_t unit, int use) override { return current->open(trainable, unit, use); }
    void close(int trainable, int64_t unit, int use) override { current->close(trainable, unit, use); }
    models::Sums* current = nullptr;
  };
  Tensor view(std::vector<int32_t>& numbers) {
    return {numbers.data(), DType::i32, Shape{std::ssize(numbers)}, &device_};
  }

  CountingDevice device_;
  ops::Registry registry_;
  ThreadPool threads_{1};
  spec::Recompute recompute_;
  Batches& batches_;
  comm::Group tp_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  Arena scratch_;
  std::vector<Arena> saved_;
  ops::Context context_{device_, registry_, scratch_, &threads_};
  CurrentSums sums_;
  nn::Training training_{.accumulator = sums_, .accumulation_offsets = {0, 5, tokens}, .recompute = recompute_};
  std::array<nn::TokenBatch, 2> tokens_;
  std::optional<nn::NextTokenLoss> objective_;
  std::optional<Pipeline> pipeline_;
};

// All families, with eight blocks.
std::vector<models::FamilyCase> cases() {
  std::vector<models::FamilyCase> list = models::family_cases();
  for (models::FamilyCase& c : list) {
    const auto layers = c.spec.layers;
    for (size_t i = 0; c.spec.layers.size() < 8; ++i) c.spec.layers.push_back(layers[i % layers.size()]);
  }
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
};

struct Whole {
  std::vector<Values> weights;
  std::vector<Values> losses;  // by micro-batch
  Gradients gradients;

  Whole(const spec::ModelSpec& spec, int micro_batches) : weights(models::whole_weights(spec)) {
    const spec::PipelineSchedule alone = spec::make_pipeline_schedule(gpipe, {.micro_batches = micro_batches});
    Batches batches(spec, micro_batches);
    Part part(spec, alone, weights, {}, {}, spec::Recompute::none, batches);
    part.run();
    for (const Batches::One& one : batches.all) losses.push_back(one.losses);
    gradients.add(part);
  }
};

void expect_bits(const spec::ModelSpec& spec, const Whole& whole, const Setting& setting) {
  SCOPED_TRACE(spec::name_of(setting.name));
  const spec::PipelineSchedule schedule = spec::make_pipeline_schedule(
      setting.name, {.ranks = setting.ranks, .chunks = setting.chunks, .micro_batches = setting.micro_batches});
  Gradients gradients;
  comm::run_in_process({.ranks = setting.ranks, .timeout_s = 60}, [&](const comm::Group& pp) {
    Batches batches(spec, setting.micro_batches);
    Part part(spec, schedule, whole.weights, pp, {}, setting.recompute, batches);
    part.run();
    gradients.add(part);
    EXPECT_EQ(part.updates, 1);
    EXPECT_EQ(std::ssize(part.reduced), setting.chunks);
    if (schedule.rank_of(schedule.shape.virtual_stages() - 1) == pp.rank()) {
      for (size_t i = 0; i < whole.losses.size(); ++i) EXPECT_EQ(batches.all[i].losses, whole.losses[i]) << i;
    }
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
}

class PipelineOfTensorParallelStages : public testing::TestWithParam<models::FamilyCase> {};

TEST_P(PipelineOfTensorParallelStages, EqualsTheWholeModel) {
  const spec::ModelSpec& spec = GetParam().spec;
  const Whole whole(spec, 3);
  const spec::PipelineSchedule schedule = spec::make_pipeline_schedule(one_f_one_b, {.ranks = 2, .micro_batches = 3});
  const std::vector<spec::ParamSpec> table = spec::parameters(spec);
  // The rounding error of sums of this many terms propagates through all blocks, forward and backward.
  const int64_t terms = std::max(spec::longest_row(spec), tokens) * 7 * spec.num_layers() * 3;
  const auto tolerated = [&](const Values& expected) {
    double scale = 0;
    for (const float value : expected) scale = std::max(scale, std::abs(static_cast<double>(value)));
    return tolerance(DType::f32, terms) * scale;
  };
  Gradients tied;  // of the first ranks of all stages
  comm::run_in_process({.ranks = 4, .timeout_s = 60}, [&](const comm::Group& world) {
    const comm::Grid grid = comm::make_grid(world, {.pp = 2, .tp = 2});
    Batches batches(spec, 3);
    Part part(spec, schedule, whole.weights, grid.pp, grid.tp, spec::Recompute::none, batches);
    part.run();
    if (spec.tied_head && grid.tp.rank() == 0) tied.add(part);
    part.for_parameters([&](const spec::HeldParameter& p, const Values& values) {
      if (spec.tied_head && p.held.role == spec::Role::embedding) return;
      const Values& expected = whole.gradients.all.at(p.whole);
      models::for_elements(p, table[p.whole], [&](size_t from, size_t to) {
        ASSERT_NEAR(values[to], expected[from], tolerated(expected)) << p.held.name << " " << from;
      });
    });
  });
  if (!spec.tied_head) return;
  const Values& expected = whole.gradients.all.at(0);
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(tied.all.at(0)[i], expected[i], tolerated(expected)) << i;
}

INSTANTIATE_TEST_SUITE_P(Families, PipelineOfFamily, testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

// Those whose heads can be cut too.
std::vector<models::FamilyCase> tensor_parallel_cases() {
  std::vector<models::FamilyCase> list = cases();
  std::erase_if(list, [](const models::FamilyCase& c) {
    try {
      spec::check(c.spec, {.tp = 2, .pp = 2});
      return false;
    } catch (const Error&) {
      return true;
    }
  });
  return list;
}

INSTANTIATE_TEST_SUITE_P(Families, PipelineOfTensorParallelStages, testing::ValuesIn(tensor_parallel_cases()),
                         [](const auto& one) { return one.param.name; });

TEST(Pipeline, HasTheSameBitsWithEveryScheduleAndNumberOfMicroBatches) {
  const spec::ModelSpec spec = cases().front().spec;
  for (const int micro_batches : {1, 3, 8}) {
    const Whole whole(spec, micro_batches);
    for (const spec::PipelineScheduleName name : {gpipe, one_f_one_b}) {
      for (const int ranks : {1, 2, 3}) expect_bits(spec, whole, {name, ranks, 1, micro_batches});
    }
    if (micro_batches == 8) expect_bits(spec, whole, {interleaved, 4, 2, 8});
    if (micro_batches == 8) expect_bits(spec, whole, {interleaved, 2, 4, 8});
  }
}

TEST(Pipeline, RefusesSchedulesThatItCannotRun) {
  const spec::ModelSpec spec = cases().front().spec;
  const spec::PipelineSchedule schedule = spec::make_pipeline_schedule(zb_h1, {.ranks = 2, .micro_batches = 4});
  const std::vector<Values> weights = models::whole_weights(spec);
  EXPECT_THROW(comm::run_in_process({.ranks = 2, .timeout_s = 60},
                                    [&](const comm::Group& pp) {
                                      Batches batches(spec, 4);
                                      Part(spec, schedule, weights, pp, {}, spec::Recompute::none, batches);
                                    }),
               Error);
}

}  // namespace
}  // namespace ingot::train
