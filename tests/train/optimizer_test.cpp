// Optimizer updates of single parameters: scratch, 8-bit states, chunks, halted updates.
#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_device.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "ops/adamw_bytes.h"
#include "ops/registry.h"
#include "tests/counting_device.h"
#include "tests/train/small_run.h"

namespace ingot::train {
namespace {

constexpr OptimizerName all_names[] = {OptimizerName::adamw, OptimizerName::muon, OptimizerName::sgd,
                                       OptimizerName::lion};

// A parameter with its gradient in fp32 and its optimizer state in the given dtype.
struct Parameter {
  CountingDevice device;
  ops::Registry registry;
  ThreadPool threads{2};
  const Optimizer& optimizer;
  Shape shape;
  int64_t shard;
  DType type;
  Buffer master, gradient, decision;
  std::vector<Buffer> memory;
  std::vector<StateTensor> state;
  UpdateAttributes attributes;

  // Elements [0, `elements`) of a parameter of size `whole` are this rank's; 0 means all.
  Parameter(OptimizerName name, Shape whole, DType state_type, int64_t elements = 0)
      : optimizer(optimizer_for(name, whole, 0)),
        shape(whole),
        shard(elements > 0 ? elements : whole.elements()),
        type(state_type),
        master(device, static_cast<size_t>(shard) * 4),
        gradient(device, static_cast<size_t>(shard) * 4),
        decision(device, 24),
        state(state_layout(optimizer, whole, shard, state_type)) {
    cpu::register_ops(registry);
    size_t bytes = 0;
    for (StateTensor& each : state) {
      memory.emplace_back(device, each.tensor.bytes());
      bytes += Arena::footprint(each.tensor.dtype, each.tensor.shape);
      each.tensor = memory.back().view(each.tensor.dtype, each.tensor.shape);
    }
    EXPECT_EQ(bytes, state_bytes(optimizer, whole, shard, state_type));
    draw(master, 0);
    attributes.settings.weight_decay = 0.1;
    attributes.lr = 0.01;
    attributes.decision = decision.view(DType::f64, {3});
    attributes.decision.as<double>()[1] = 0.5;
  }
  static std::span<float> values(const Buffer& buffer) {
    return {static_cast<float*>(buffer.data()), buffer.bytes() / 4};
  }
  static void draw(const Buffer& buffer, uint64_t stream) {
    RandomStream random(3, stream);
    for (float& value : values(buffer)) value = static_cast<float>(random.normal());
  }
  // Each update has another gradient and exactly the scratch that update_bytes() returns. Returns how much of it was
  // used.
  size_t update() {
    draw(gradient, static_cast<uint64_t>(attributes.updates));
    Arena scratch(device, update_bytes(optimizer, shape, shard, DType::f32), "scratch");
    ops::Context context{device, registry, scratch, &threads};
    const ParameterUpdate parameter{.shape = shape,
                                    .master = master.view(DType::f32, {shard}),
                                    .gradient = gradient.view(DType::f32, {shard}),
                                    .decay = true};
    run_update(context, optimizer, state, parameter, attributes);
    ++attributes.updates;
    EXPECT_EQ(scratch.used(), 0U);
    return scratch.peak();
  }
  std::vector<float> masters() const { return {values(master).begin(), values(master).end()}; }
  std::vector<std::vector<float>> states() const {
    std::vector<std::vector<float>> all;
    for (const StateTensor& each : state) all.push_back(floats(each.tensor));
    return all;
  }
};

TEST(Optimizer, UsesExactlyThePredictedScratch) {
  for (const OptimizerName name : all_names) {
    for (const DType type : {DType::f32, DType::bf16, DType::u8}) {
      Parameter parameter(name, Shape{24, 40}, type);
      const size_t used = parameter.update();
      const size_t promised = update_bytes(parameter.optimizer, parameter.shape, parameter.shard, DType::f32);
      EXPECT_LE(used, promised);
      EXPECT_LE(promised - used, ops::sum_squares_bytes(parameter.shard));  // not needed on a CPU
      EXPECT_EQ(used == 0, name != OptimizerName::muon) << parameter.optimizer.name;
    }
  }
}

// 8-bit states equal fp32 states to about the width of a code, and the first update is the same.
TEST(Optimizer, EightBitStatesAreNearFp32) {
  for (const OptimizerName name : all_names) {
    Parameter exact(name, Shape{24, 40}, DType::f32), coded(name, Shape{24, 40}, DType::u8);
    const std::vector<float> start = exact.masters();
    exact.update();
    coded.update();
    EXPECT_EQ(coded.masters(), exact.masters()) << exact.optimizer.name;
    for (int i = 0; i < 4; ++i) {
      exact.update();
      coded.update();
    }
    double difference = 0, moved = 0;
    for (size_t i = 0; i < start.size(); ++i) {
      difference += std::abs(static_cast<double>(coded.masters()[i] - exact.masters()[i]));
      moved += std::abs(static_cast<double>(exact.masters()[i] - start[i]));
    }
    EXPECT_GT(difference, 0) << exact.optimizer.name << ": the 8-bit states have no effect";
    EXPECT_LT(difference, moved / 16) << exact.optimizer.name;  // neighbouring codes differ by 1/14 of a decade or less
  }
}

TEST(Optimizer, AHaltedUpdateChangesNothing) {
  for (const OptimizerName name : all_names) {
    for (const DType type : {DType::f32, DType::u8}) {
      Parameter parameter(name, Shape{24, 40}, type);
      parameter.update();
      const auto masters = parameter.masters();
      const auto states = parameter.states();
      parameter.attributes.decision.as<double>()[2] = 1;
      parameter.update();
      EXPECT_EQ(parameter.masters(), masters) << parameter.optimizer.name << " " << ingot::name(type);
      EXPECT_EQ(parameter.states(), states) << parameter.optimizer.name << " " << ingot::name(type);
    }
  }
}

// The last block is short.
TEST(Optimizer, EightBitStatesAreTheSameShardedByRank) {
  const int64_t elements = (int64_t{1} << 20) + 2 * 65536 + 100;
  Parameter whole(OptimizerName::adamw, Shape{1, elements}, DType::u8);
  Parameter first(OptimizerName::adamw, Shape{1, elements}, DType::u8, 65536);
  for (int i = 0; i < 2; ++i) {
    whole.update();
    first.update();
  }
  const std::vector<float> masters = whole.masters(), part = first.masters();
  EXPECT_TRUE(std::equal(part.begin(), part.end(), masters.begin()));
  for (size_t i = 0; i < whole.state.size(); ++i) {
    const std::vector<float> all = floats(whole.state[i].tensor), own = floats(first.state[i].tensor);
    EXPECT_TRUE(std::equal(own.begin(), own.end(), all.begin())) << whole.state[i].name;
  }
  const auto is_moved = [](float scale) { return scale > 0; };
  const std::vector<float> scales = floats(whole.state[1].tensor);
  EXPECT_EQ(std::ssize(scales), (elements + 255) / 256);
  EXPECT_TRUE(std::ranges::all_of(scales, is_moved));
}

TEST(Optimizer, MuonAppliesToMatricesOfTransformerBlocks) {
  const Optimizer& muon = optimizer_for(OptimizerName::muon, Shape{4, 5}, 0);
  EXPECT_TRUE(muon.whole_matrices);
  for (const auto& [shape, layer] : {std::pair{Shape{4, 5}, int64_t{-1}}, {Shape{4}, 0}}) {
    EXPECT_STREQ(optimizer_for(OptimizerName::muon, shape, layer).name, "adamw");
  }
}

}  // namespace
}  // namespace ingot::train
