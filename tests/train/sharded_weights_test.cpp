// ZeRO stage 3: every family on several ranks with the bits of ZeRO stage 2, the memory of a rank, and the errors.
#include "train/sharded_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "comm/host_communicator.h"
#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "tests/train/run_files.h"
#include "tests/train/small_run.h"
#include "train/initialise.h"
#include "train/memory_probe.h"

namespace ingot::train {
namespace {

constexpr int64_t sequences = 5;

StepResult run_sharded_step(SmallRun& run, int64_t step) {
  const std::vector<data::PackedSequence> all = run.sequences(sequences);
  const std::vector<int64_t> samples = SmallRun::samples(sequences);
  const comm::Group& ranks = run.step->grid().dp;
  const Range share = rank_sequences(sequences, 1, ranks.rank(), ranks.size());
  return run.step->run(step, 1e-2, std::span(all).subspan(share.begin, share.count()),
                       std::span(samples).subspan(share.begin, share.count()));
}

struct ShardedOutcome {
  std::vector<double> losses, norms, evaluated;
  std::map<std::string, std::vector<float>> weights;
  bool operator==(const ShardedOutcome&) const = default;
};

// Of the first rank; the others must agree, but for the losses of their own sequences.
ShardedOutcome train(SmallRun::Settings settings, int zero, int ranks) {
  settings.zero = zero;
  ShardedOutcome outcome;
  comm::run_in_process({.ranks = ranks, .timeout_s = 120}, [&](const comm::Group& world) {
    SmallRun::Settings own = settings;
    own.ranks = world;
    SmallRun run(own);
    if (own.lora) run.randomise_b(7);
    ShardedOutcome found;
    for (int64_t step = 1; step <= 2; ++step) {
      const StepResult result = run_sharded_step(run, step);
      EXPECT_FALSE(result.skipped);
      found.losses.push_back(result.loss);
      found.norms.push_back(result.grad_norm);
    }
    // Rank r evaluates r sequences.
    found.evaluated = run.step->evaluate(run.sequences(world.rank()));
    EXPECT_EQ(std::ssize(found.evaluated), world.rank());
    if (world.rank() + 1 < world.size()) found.evaluated.clear();
    std::vector<double> last = found.evaluated;
    for (const std::vector<double>& each : world.gather(std::span<const double>(last)))
      if (!each.empty()) found.evaluated = each;
    for (const TrainedParameter& t : run.optimizer_state->tensors()) found.weights[t.name] = run.weight(t);
    for (const double loss : world.gather_one(found.losses.back())) EXPECT_EQ(loss, found.losses.back());
    if (world.rank() == 0) outcome = found;
  });
  return outcome;
}

class ShardedFamilies : public testing::TestWithParam<models::FamilyCase> {};

// Three ranks of which one has a micro-batch less than the others.
TEST_P(ShardedFamilies, HaveTheBitsOfZero2) {
  // Full training in fp32, and an adapter in bf16 on a device whose memory the host cannot access.
  for (const bool adapter : {false, true}) {
    SmallRun::Settings settings{.spec = GetParam().spec, .threads = 1};
    settings.visible = !adapter;
    if (adapter) {
      settings.weights = settings.step.activation = DType::bf16;
      settings.lora = small_lora();
      settings.step.recompute = spec::Recompute::full;
    }
    const ShardedOutcome expected = train(settings, 2, 3);
    EXPECT_EQ(train(settings, 3, 3), expected) << GetParam().name << (adapter ? ", adapter" : "");
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ShardedFamilies, testing::ValuesIn(models::family_cases()),
                         [](const auto& info) { return info.param.name; });

// Frozen weights in host memory: of one rank, which is no data-parallel rank, and shares of two.
TEST_P(ShardedFamilies, MayBeInHostMemory) {
  SmallRun::Settings settings{.spec = GetParam().spec, .lora = small_lora(), .threads = 1, .visible = false};
  settings.step.micro = 2;
  for (const int ranks : {1, 2}) {
    settings.offload = false;
    const ShardedOutcome expected = train(settings, 2, ranks);
    settings.offload = true;
    EXPECT_EQ(train(settings, 3, ranks), expected) << GetParam().name << ", " << ranks << " ranks";
  }
}

// A frozen base in each storage type, whose rows are cut at any byte.
TEST(ShardedWeights, AreDividedEvenlyInAnyStorageType) {
  const spec::ModelSpec spec = small_spec();
  const std::vector<spec::HeldParameter> held = spec::held_parameters(spec, spec::ModelShard{});
  for (const StorageType storage : {StorageType::q8_0, StorageType::fp8_e4m3, StorageType::bf16}) {
    std::vector<ParameterForm> forms = random_forms(held, DType::bf16);
    for (ParameterForm& form : forms) {
      if (form.shape.rank() < 2) continue;
      form.storage = storage;
      form.shape = Shape{form.shape[0] * 64, 4096};
    }
    std::map<size_t, std::vector<Range>> parts;
    for (int rank = 0; rank < 3; ++rank) {
      const std::vector<WeightUnit> units = weight_units(spec, forms, {}, {.rank = rank, .ranks = 3, .zero = 3});
      EXPECT_EQ(std::ssize(units), spec.num_layers() + 2);
      for (const WeightUnit& unit : units) {
        ASSERT_EQ(unit.size(), 1U);
        const WeightBucket& bucket = unit.front();
        const size_t all = std::accumulate(bucket.sections.begin(), bucket.sections.end(), size_t{0});
        EXPECT_EQ(static_cast<int64_t>(all), bucket.total);
        EXPECT_EQ(gathered_bytes(unit), std::vector{all});
        const auto [least, most] = std::ranges::minmax(bucket.sections);
        EXPECT_LE(most - least, size_t{2} << 16);  // divided at multiples of 64 KiB
        for (const WeightBucket::Member& member : bucket.members) parts[member.form.number].push_back(member.own);
      }
    }
    for (const ParameterForm& form : forms) {
      int64_t at = 0;
      for (const Range& part : parts.at(form.number)) {
        if (part.count() == 0) continue;
        EXPECT_EQ(part.begin, at) << name(storage);
        at = part.end;
      }
      EXPECT_EQ(at, static_cast<int64_t>(form.bytes())) << name(storage);
    }
  }
}

spec::ModelSpec mixture_of(int64_t hidden, int64_t features) {
  spec::ModelSpec spec = small_spec();
  spec.family = "mixtral";
  spec.hidden = hidden;
  for (spec::LayerSpec& layer : spec.layers)
    layer.mlp = spec::Experts{.count = 4, .per_token = 2, .expert = {.features = features}};
  return spec;
}

ShardSpec expert_parallel(int rank, int ranks, int64_t ep) {
  ShardSpec share{rank, ranks, 3};
  share.shards.front().ep = ep;
  share.shards.front().ep_rank = rank % ep;
  return share;
}

// All ranks divide what all have, and the ranks with the same experts divide these; both in full training, in which
// gradients are divided likewise, and of a frozen base.
TEST(ShardedWeights, OfExpertsAreDividedAmongTheRanksThatHaveThem) {
  const spec::ModelSpec spec = mixture_of(256, 512);
  const std::vector<spec::ParamSpec> table = spec::parameters(spec);
  for (const bool adapter : {false, true}) {
    for (const int64_t ep : {2, 4}) {
      std::map<size_t, std::map<int64_t, int64_t>> parts;  // of each parameter, begin to end
      for (int rank = 0; rank < 4; ++rank) {
        const ShardSpec share = expert_parallel(rank, 4, ep);
        const std::vector<ParameterForm> forms = random_forms(spec::held_parameters(spec, share.shards), DType::bf16);
        std::vector<DividedBucket> trained;
        if (!adapter) trained = divide_parameters(spec, DType::bf16, {}, share);
        const std::vector<WeightUnit> units = weight_units(spec, forms, trained, share);
        for (size_t u = 0; u < units.size(); ++u) {
          const bool block = u > 0 && u + 1 < units.size();
          ASSERT_EQ(units[u].size(), block ? 2U : 1U);
          int64_t begin = 0;
          for (const WeightBucket& bucket : units[u]) {
            EXPECT_EQ(bucket.divided, &bucket != &units[u].front());
            EXPECT_EQ(bucket.begin, begin);
            begin += bucket.total;
            EXPECT_EQ(std::ssize(bucket.sections), bucket.divided ? 4 / ep : 4);
            for (const WeightBucket::Member& member : bucket.members) {
              EXPECT_EQ(table[member.form.number].expert >= 0, bucket.divided);
              if (member.own.count() > 0) parts[member.form.number][member.own.begin] = member.own.end;
            }
          }
          EXPECT_EQ(gathered_bytes(units[u]).size(), block && ep == 2 ? 2U : 1U);
        }
      }
      const std::vector<ParameterForm> all = random_forms(spec::held_parameters(spec, spec::ModelShard{}), DType::bf16);
      for (const ParameterForm& form : all) {
        int64_t at = 0;
        for (const auto& [begin, end] : parts[form.number]) {
          EXPECT_EQ(begin, at) << table[form.number].name;
          at = end;
        }
        EXPECT_EQ(at, static_cast<int64_t>(form.bytes())) << table[form.number].name;
      }
    }
  }
}

// Experts that one rank has alone are not gathered, but uploaded where they are in host memory.
TEST(ShardedWeights, OfExpertsTakeThePredictedMemory) {
  const spec::ModelSpec spec = mixture_of(256, 512);
  const size_t expert = size_t{3} * 256 * 512 * 2;  // bytes; of four in each of three blocks
  for (const bool visible : {true, false}) {
    for (const int ep : {2, 4}) {
      comm::run_in_process({.ranks = 4, .timeout_s = 60}, [&](const comm::Group& world) {
        ShardSpec share = expert_parallel(world.rank(), 4, ep);
        const std::vector<ParameterForm> forms = random_forms(spec::held_parameters(spec, share.shards), DType::bf16);
        const std::vector<WeightUnit> units = weight_units(spec, forms, {}, share);
        const ShardedWeightBytes bytes = sharded_weight_bytes(spec, units, share, !visible);
        CountingDevice device(visible);
        const comm::Group weights = world.split(0, world.rank(), "weights");
        const comm::Group experts = world.split(world.rank() % ep, world.rank(), "expert weights");
        const auto make = [&] {
          return ShardedWeights(device, spec, units, share, comm::through_host(device, weights),
                                comm::through_host(device, experts));
        };
        const ShardedWeights made = make();
        EXPECT_EQ(device.allocated(), bytes.own + bytes.gathered);
        EXPECT_NEAR(static_cast<double>(bytes.own), 3.0 * static_cast<double>(expert),
                    0.5 * static_cast<double>(expert));
        const size_t gathered = ep == 4 ? 0 : size_t{2} * 2 * expert;  // two blocks with two experts each
        EXPECT_GE(bytes.gathered, gathered);
        EXPECT_LT(bytes.gathered, gathered + 2 * expert);
        EXPECT_EQ(bytes.staging, visible ? 0 : bytes.gathered);
        for (const ParameterForm& form : forms) {
          const bool alone = ep == 4 && spec::parameters(spec)[form.number].expert >= 0;
          EXPECT_EQ(made.is_there(form.number), alone);
        }
        if (visible) return;
        share.offload_weights = true;
        const ShardedWeightBytes host = sharded_weight_bytes(spec, units, share, true);
        EXPECT_EQ(host.own, 0U);
        EXPECT_EQ(host.offloaded, bytes.own);
        EXPECT_GE(host.gathered, size_t{2} * (4 / static_cast<size_t>(ep)) * expert);
        EXPECT_EQ(host.staging, bytes.staging);
        const size_t before = device.allocated();
        const ShardedWeights offloaded = make();
        EXPECT_EQ(device.allocated() - before, host.gathered);
      });
    }
  }
}

TEST(ShardedWeights, AreGatheredByTheRanksThatDivideThem) {
  const spec::ModelSpec spec = mixture_of(16, 24);
  const std::string text = refusal(ErrorKind::internal, [&] {
    comm::run_in_process({.ranks = 4, .timeout_s = 60}, [&](const comm::Group& world) {
      const ShardSpec share = expert_parallel(world.rank(), 4, 2);
      const std::vector<ParameterForm> forms = random_forms(spec::held_parameters(spec, share.shards), DType::f32);
      CountingDevice device;
      const auto ranks = comm::through_host(device, world);
      const ShardedWeights weights(device, spec, weight_units(spec, forms, {}, share), share, ranks, ranks);
    });
  });
  EXPECT_NE(text.find("of 2 are gathered by rank"), std::string::npos) << text;
}

// What is allocated is what was predicted, and the share falls as 1 / ranks.
TEST(ShardedWeights, TakeThePredictedMemory) {
  spec::ModelSpec spec = small_spec();
  spec.vocab = 32768;
  spec.hidden = 256;
  const std::vector<spec::HeldParameter> held = spec::held_parameters(spec, spec::ModelShard{});
  const std::vector<ParameterForm> forms = random_forms(held, DType::bf16);
  size_t whole = 0;
  for (const ParameterForm& form : forms) whole += form.bytes();
  for (const bool visible : {true, false}) {
    for (const int ranks : {2, 4, 8}) {
      comm::run_in_process({.ranks = ranks, .timeout_s = 60}, [&](const comm::Group& world) {
        CountingDevice device(visible);
        std::vector<WeightUnit> units = weight_units(spec, forms, {}, {world.rank(), ranks, 3});
        const ShardedWeightBytes bytes = sharded_weight_bytes(spec, units, {world.rank(), ranks, 3}, !visible);
        const size_t embedding = static_cast<size_t>(spec.vocab * spec.hidden) * 2;
        EXPECT_NEAR(static_cast<double>(bytes.own) * ranks / static_cast<double>(whole), 1, 0.1);
        EXPECT_LT(bytes.gathered, embedding + whole / 8);  // not all of the weights
        EXPECT_EQ(bytes.staging, visible ? 0 : bytes.gathered);
        ShardSpec share{world.rank(), ranks, 3};
        const ShardedWeights weights(device, spec, units, share, comm::through_host(device, world));
        EXPECT_EQ(device.allocated(), bytes.own + bytes.gathered);
        if (visible) return;
        share.offload_weights = true;
        const ShardedWeightBytes host = sharded_weight_bytes(spec, units, share, !visible);
        EXPECT_EQ(host.offloaded, bytes.own);
        EXPECT_EQ(host.own, 0U);
        const size_t before = device.allocated();
        const ShardedWeights offloaded(device, spec, std::move(units), share, comm::through_host(device, world));
        EXPECT_EQ(device.allocated() - before, host.gathered);
      });
    }
  }
}

// The weights come in the order of the pass, each when it is needed.
TEST(ShardedWeights, GatherWhatIsNeededAndRefuseWhatIsNot) {
  for (const bool visible : {true, false}) {
    for (const bool tied : {false, true}) {
      spec::ModelSpec spec = small_spec(tied);
      spec.vocab = 4500;  // an embedding that is divided
      const std::vector<spec::HeldParameter> held = spec::held_parameters(spec, spec::ModelShard{});
      const std::vector<ParameterForm> forms = random_forms(held, DType::f32);
      comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& world) {
        CountingDevice device(visible);
        const WeightSet whole = random_weights(device, spec, DType::f32, 3, held);
        ShardedWeights weights(device, spec, weight_units(spec, forms, {}, {world.rank(), 2, 3}), {world.rank(), 2, 3},
                               comm::through_host(device, world));
        write_random_weights(device, spec, DType::f32, 3, held, weights.own());
        const auto same = [&](int unit) {
          for (const WeightBucket::Member& member : weights.units()[static_cast<size_t>(unit)].front().members) {
            const size_t number = member.form.number;
            const Parameter &a = whole.parameters[number], &b = weights.weights().parameters[number];
            const auto values = [](const Parameter& p) { return floats(p.matrix ? p.matrix.tensor() : p.vector); };
            if (!weights.is_there(number) || values(a) != values(b)) return false;
          }
          return true;
        };
        const int last = static_cast<int>(spec.num_layers()) + 1;
        std::vector<int> pass(static_cast<size_t>(last) + 1);
        std::iota(pass.begin(), pass.end(), 0);
        for (int unit = last; unit-- > 1;) pass.push_back(unit);
        for (int repeat = 0; repeat < 2; ++repeat) {
          weights.begin_pass(pass);
          for (const int unit : pass) {
            weights.need(unit);
            EXPECT_TRUE(same(unit)) << "unit " << unit;
            if (unit == last && tied) EXPECT_TRUE(same(0));
          }
        }
        weights.begin_pass({0, 1});
        EXPECT_NE(refusal(ErrorKind::internal, [&] { weights.need(1); }).find("those of 0 come next"),
                  std::string::npos);
        weights.need(0);
        weights.need(1);
        EXPECT_NE(refusal(ErrorKind::internal, [&] { weights.need(2); }), "");
        // After the share was written, what has been gathered is not used.
        const Tensor share = weights.own(0, DType::f32);
        ASSERT_GT(share.elements(), 0);
        if (world.rank() == 0) share.as<float>()[0] = 7;
        weights.changed();
        EXPECT_FALSE(weights.is_there(0));
        weights.begin_pass({0});
        weights.need(0);
        EXPECT_EQ(weights.weights().parameters[0].matrix.tensor().as<float>()[0], 7);
      });
    }
  }
}

// A value that is not finite in one rank's share skips the step on all, and its layer is named, though layers share
// memory.
TEST(ShardedWeights, NameTheLayerOfANonFiniteValue) {
  for (const bool adapter : {false, true}) {
    SmallRun::Settings settings{.threads = 1};
    settings.zero = 3;
    if (adapter) settings.lora = small_lora();
    for (const char* name : {"model.layers.0.mlp.up_proj.weight", "model.layers.2.self_attn.v_proj.weight",
                             "model.norm.weight", "lm_head.weight"}) {
      comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& world) {
        SmallRun::Settings own = settings;
        own.ranks = world;
        SmallRun run(own);
        EXPECT_FALSE(run_sharded_step(run, 1).skipped);
        const std::vector<spec::ParamSpec> table = spec::parameters(run.spec);
        const auto number = static_cast<size_t>(std::ranges::find(table, name, &spec::ParamSpec::name) - table.begin());
        const Tensor share = run.sharded->own(number, DType::f32);
        if (share.elements() > 0) share.as<float>()[0] = INFINITY;
        run.sharded->changed();
        EXPECT_TRUE(run_sharded_step(run, 2).skipped);
        const std::vector<data::PackedSequence> all = run.sequences(sequences);
        const std::vector<int64_t> samples = SmallRun::samples(sequences);
        const auto begin = static_cast<size_t>(world.rank()) * 2, count = static_cast<size_t>(world.rank()) + 2;
        const std::string found = run.step->locate_non_finite(
            2, std::span(all).subspan(begin, count), std::span(samples).subspan(begin, count), run.sharded->weights());
        EXPECT_NE(found.find(std::string(name) + ", whose values are not finite"), std::string::npos) << found;
      });
    }
  }
}

// A probe computes alone, so that a rank that runs out of memory leaves none waiting; then they train as without it.
TEST(ShardedWeights, MemoryProbesDoNotGather) {
  SmallRun::Settings settings{.threads = 1};
  const ShardedOutcome expected = train(settings, 3, 2);
  settings.zero = 3;
  comm::run_in_process({.ranks = 2, .timeout_s = 120}, [&](const comm::Group& world) {
    SmallRun::Settings own = settings;
    own.ranks = world;
    SmallRun run(own);
    ProbedStep tried = run.probe(3, world.rank() == 1, run.sequences(sequences));
    EXPECT_NE(tried.shortage, "");
    const std::vector<data::PackedSequence> all = run.sequences(sequences);
    const std::vector<int64_t> samples = SmallRun::samples(sequences);
    const Range share = rank_sequences(sequences, 1, world.rank(), 2);
    const StepResult result = tried.step->run(1, 1e-2, std::span(all).subspan(share.begin, share.count()),
                                              std::span(samples).subspan(share.begin, share.count()));
    EXPECT_EQ(result.loss, expected.losses.front());
  });
}

TEST(ShardedWeights, AreRequiredByTheirStageAlone) {
  const std::string text = refusal(ErrorKind::internal, [] {
    comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& world) {
      SmallRun::Settings own{.threads = 1};
      own.zero = 3;
      own.ranks = world;
      SmallRun run(own);
      TrainedModel model = run.model();
      model.sharded = nullptr;
      const Step step(run.device, run.registry, run.threads, model, *run.optimizer_state, own.step, false,
                      comm::data_parallel(world));
    });
  });
  EXPECT_NE(text.find("ZeRO stage 3"), std::string::npos) << text;
}

}  // namespace
}  // namespace ingot::train
