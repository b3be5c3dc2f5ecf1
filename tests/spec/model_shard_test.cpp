// Parts of a model: which parameters the ranks of a pipeline hold, and where backward ends.
#include "spec/model_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "models/testing/family_specs.h"
#include "spec/pipeline_schedule.h"
#include "tests/spec/small_model.h"

namespace ingot::spec {
namespace {

using enum PipelineScheduleName;

// Each parameter is on one rank, except for a tied embedding, of which the last stage's rank has a copy.
TEST(PipelineShards, HoldEveryParameterOnce) {
  for (const bool tied : {false, true}) {
    for (const auto& [name, ranks, chunks] : {std::tuple{one_f_one_b, 3, 1}, {interleaved, 2, 3}, {zb_v, 3, 2}}) {
      ModelSpec model = small_model("llama", 7);
      model.tied_head = tied;
      std::map<size_t, int> held, copies;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<ModelShard> shards = pipeline_shards(name, ranks, chunks, rank);
        EXPECT_EQ(std::ssize(shards), chunks);
        EXPECT_EQ(shards.front().stage, rank);
        size_t before = 0;
        for (const HeldParameter& p : held_parameters(model, shards)) {
          EXPECT_TRUE(held.empty() || p.whole >= before);
          before = p.whole;
          ++(p.copy ? copies : held)[p.whole];
        }
      }
      EXPECT_EQ(held.size(), parameters(model).size());
      for (const auto& [parameter, times] : held) EXPECT_EQ(times, 1) << parameter;
      // With zb_v the first rank has the last stage too, and one embedding for both uses.
      EXPECT_EQ(copies.size(), tied && name != zb_v ? 1U : 0U);
    }
  }
}

// The head of this model is as much as five of its blocks.
TEST(PipelineShards, TheLastStageHasFewerBlocksForTheHead) {
  ModelSpec model = small_model("llama", 12);
  model.vocab = 5 * (4 * model.hidden * model.hidden + 3 * 4 * model.hidden * model.hidden) / model.hidden;
  for (LayerSpec& layer : model.layers) {
    layer.attention.heads = layer.attention.kv_heads = 4;
    layer.attention.head_dim = model.hidden / 4;
    layer.mlp = Dense{.features = 4 * model.hidden};
  }
  const auto numbers = [&](int64_t stages) {
    std::vector<int64_t> blocks;
    for (int64_t stage = 0; stage < stages; ++stage)
      blocks.push_back(blocks_of(model, {.pp = stages, .stage = stage}).count());
    return blocks;
  };
  EXPECT_EQ(numbers(1), std::vector<int64_t>{12});
  EXPECT_EQ(numbers(2), (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(numbers(3), (std::vector<int64_t>{6, 5, 1}));
  EXPECT_EQ(numbers(6), (std::vector<int64_t>{3, 2, 2, 2, 2, 1}));
  EXPECT_EQ(numbers(12), std::vector<int64_t>(12, 1));
  model.vocab /= 20;  // a quarter of a block
  EXPECT_EQ(numbers(5), (std::vector<int64_t>{3, 3, 2, 2, 2}));
}

TEST(PipelineShards, BackwardEndsAtTheLowestTrainableBlock) {
  const ModelSpec model = small_model("llama", 8);
  const auto end_of = [&](int64_t stage, int64_t lowest) {
    return backward_end(model, {.pp = 4, .stage = stage}, lowest);
  };
  const auto expect = [&](int64_t stage, int64_t lowest, int64_t layer, bool input_gradient) {
    EXPECT_EQ(end_of(stage, lowest).lowest_layer, layer) << stage << ", " << lowest;
    EXPECT_EQ(end_of(stage, lowest).input_gradient, input_gradient) << stage << ", " << lowest;
  };
  expect(0, 0, 0, false);
  expect(3, 0, 0, true);
  // Blocks 0 to 2 are frozen: stage 1 has blocks 2 and 3.
  EXPECT_EQ(first_trainable_stage(model, 4, 3), 1);
  expect(0, 3, 2, false);
  expect(1, 3, 1, false);
  expect(2, 3, 0, true);
  // Up to a stage's end.
  EXPECT_EQ(first_trainable_stage(model, 4, 4), 2);
  expect(1, 4, 2, false);
  expect(2, 4, 0, false);
  // Only the head.
  EXPECT_EQ(first_trainable_stage(model, 4, 8), 3);
  expect(2, 8, 2, false);
  expect(3, 8, 2, false);
}

// Every element of a parameter is on one of the tensor-parallel ranks, or all are on each; those of a key/value head
// are on neighbours where there are fewer heads than ranks. One rank's count.
TEST(TensorParallelShards, HoldEveryElement) {
  size_t cut = 0, copied = 0;
  for (const models::FamilyCase& family : models::family_cases()) {
    const std::vector<ParamSpec> table = parameters(family.spec);
    std::map<size_t, std::vector<int>> held, counts;
    for (const int64_t rank : {0, 1, 2, 3}) {
      std::vector<HeldParameter> own;
      try {
        own = held_parameters(family.spec, {.tp = 4, .tp_rank = rank});
      } catch (const Error&) {
        continue;  // refused: in other tests
      }
      for (const HeldParameter& p : own) {
        const ParamSpec& whole = table[p.whole];
        std::vector<int>& times = held[p.whole];
        times.resize(static_cast<size_t>(whole.elements()));
        EXPECT_EQ(p.slice.elements(), p.held.elements()) << whole.name;
        std::vector<int>& counted = counts[p.whole];
        counted.resize(times.size());
        const int64_t first_counted = p.counted_elements({.tp = 4, .tp_rank = rank});
        for_runs(p.slice, whole.shape.size() > 1 ? whole.shape[1] : 1, [&](int64_t first, int64_t count, int64_t at) {
          for (int64_t i = 0; i < count; ++i) {
            ++times[static_cast<size_t>(first + i)];
            if (at + i < first_counted) ++counted[static_cast<size_t>(first + i)];
          }
        });
        cut += p.placement == TensorPlacement::sharded ? 1 : 0;
        copied += p.copied.ranks > 1 ? 1 : 0;
        if (rank < 3) continue;
        EXPECT_EQ(counted, std::vector<int>(counted.size(), 1)) << family.name << " " << whole.name;
        std::vector<int> expected(times.size(), p.placement == TensorPlacement::sharded ? 1 : 4);
        if (whole.kv_heads > 0 && whole.kv_heads < 4) {
          // Of a fused layer the queries, which come first, are on one rank.
          const int64_t queries =
              whole.row_groups.empty() ? 0 : whole.row_groups[0] * whole.elements() / whole.shape[0];
          std::fill(expected.begin() + queries, expected.end(), static_cast<int>(4 / whole.kv_heads));
        }
        EXPECT_EQ(times, expected) << family.name << " " << whole.name;
      }
    }
  }
  EXPECT_GT(cut, 100U);
  EXPECT_GT(copied, 100U);
}

// Ranks of every place hold each expert's parameters once, and all others each.
TEST(ExpertParallelShards, DivideTheExperts) {
  for (const models::FamilyCase& family : models::family_cases()) {
    for (const int64_t ranks : {2, 4}) {
      if (!models::can_be_cut(family.spec, {.ep = ranks})) continue;
      std::map<size_t, int64_t> holders;
      const std::vector<ParamSpec> table = parameters(family.spec);
      for (int64_t rank = 0; rank < ranks; ++rank) {
        for (const HeldParameter& p : held_parameters(family.spec, {.ep = ranks, .ep_rank = rank})) {
          ++holders[p.whole];
          EXPECT_EQ(p.divided, table[p.whole].expert >= 0) << family.name << " " << p.held.name;
          EXPECT_EQ(p.held.shape, table[p.whole].shape);
        }
      }
      for (size_t i = 0; i < table.size(); ++i)
        EXPECT_EQ(holders[i], table[i].expert >= 0 ? 1 : ranks) << family.name << " " << table[i].name;
    }
  }
}

TEST(ExpertParallelShards, RefusalsNameWhatWorks) {
  ModelSpec mixture = models::family_cases().front().spec;
  const auto refusal = [&](int64_t ranks) {
    try {
      check(mixture, {.ep = ranks});
    } catch (const Error& error) {
      return error.message() + "; " + error.hint();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal(2), "ep is 2, but the model has no experts; remove ep");
  mixture.layers.back().mlp = Experts{.count = 6, .per_token = 2, .expert = dense_of(mixture.layers.back().mlp)};
  EXPECT_EQ(refusal(3), "accepted");
  EXPECT_EQ(refusal(4), "6 experts cannot be divided among ep 4 ranks; use one of 1, 2, 3, 6");
  // No family has both; the norm's parameters would follow the experts', which are gathered and reduced on their own.
  mixture.layers.back().post_norms = true;
  EXPECT_EQ(refusal(1), "accepted");
  EXPECT_EQ(refusal(2),
            "ep 2: the model normalises its experts' results, and a block's experts have to be the last of its "
            "parameters; remove ep");
}

// Slices of sums are refused as ranks are, with the setting's name and the most that work.
TEST(TensorParallelShards, RefusedSlicesNameSizesAndWhatWorks) {
  ModelSpec model = small_model("llama", 2);
  for (LayerSpec& layer : model.layers) {
    layer.attention.heads = 16;
    layer.attention.kv_heads = 4;
    layer.mlp = Dense{.features = 50};
  }
  const auto refusal = [&](int64_t slices) {
    try {
      check_sum_slices(model, slices);
    } catch (const Error& error) {
      return std::string(error.message()) + "; " + error.hint();
    }
    return std::string("fits");
  };
  EXPECT_EQ(refusal(1), "fits");
  EXPECT_EQ(refusal(2), "fits");
  EXPECT_EQ(refusal(4),
            "parallel.units is 4, which does not divide the model's 50 MLP features; set parallel.units to 2");
  EXPECT_EQ(refusal(8),
            "parallel.units is 8, which does not divide the model's 4 key/value heads; set parallel.units to 2");
  model.layers.front().attention.kv_heads = 1;
  EXPECT_EQ(refusal(8),
            "parallel.units is 8, which does not divide the model's 1 key/value heads; remove parallel.units");
}

TEST(TensorParallelShards, RefusalsNameTheNearestNumbers) {
  ModelSpec model = small_model("llama", 2);
  for (LayerSpec& layer : model.layers) {
    layer.attention.heads = 12;
    layer.attention.kv_heads = 6;
    layer.mlp = Dense{.features = 48};
  }
  const auto hint = [&](int64_t tp) {
    try {
      check(model, {.tp = tp});
    } catch (const Error& error) {
      return error.hint();
    }
    return std::string("fits");
  };
  EXPECT_EQ(hint(4), "use tp 3 or 6, or divide the model by pp");
  EXPECT_EQ(hint(7), "use tp 6 or 12, or divide the model by pp");
  EXPECT_EQ(hint(3), "fits");
  EXPECT_EQ(hint(12), "fits");             // two ranks have the same key/value head
  model.layers[1].attention.kv_heads = 2;  // all layers count
  EXPECT_EQ(hint(3), "use tp 2 or 6, or divide the model by pp");
  EXPECT_EQ(hint(6), "fits");
}

TEST(TensorParallelShards, AdaptersAreCutWithTheirLayers) {
  const ModelSpec model = small_model("llama", 2);
  const std::vector<HeldParameter> held = held_parameters(model, ModelShard{.tp = 2, .tp_rank = 1});
  for (const LoraParam& p : lora_parameters(model, {.rank = 4, .targets = {"q_proj", "o_proj", "lm_head"}})) {
    const auto base = std::ranges::find(held, p.base, &HeldParameter::whole);
    ASSERT_NE(base, held.end());
    const auto [adapter, a, b] = held_adapter(p, *base);
    using enum TensorPlacement;
    const bool query = p.module.ends_with("q_proj"), head = p.module == "lm_head";
    const bool outputs = query || head;
    EXPECT_EQ(a.placement, outputs ? partial : sharded) << p.module;
    EXPECT_EQ(b.placement, outputs ? sharded : partial) << p.module;
    const int64_t in = outputs ? p.in : p.in / 2, out = outputs ? p.out / 2 : p.out;
    EXPECT_EQ(a.slice, (Slice{{{0, 4}}, {p.in - in, p.in}})) << p.module;
    EXPECT_EQ(b.slice, (Slice{{{p.out - out, p.out}}, {0, 4}})) << p.module;
  }
}

TEST(Slices, AreWalkedInOrder) {
  const Slice slice{{{1, 3}, {4, 5}}, {2, 4}};
  EXPECT_EQ(slice.elements(), 6);
  std::vector<std::array<int64_t, 3>> runs;
  for_runs(slice, 5, [&](int64_t first, int64_t count, int64_t at) { runs.push_back({first, count, at}); });
  EXPECT_EQ(runs, (std::vector<std::array<int64_t, 3>>{{7, 2, 0}, {12, 2, 2}, {22, 2, 4}}));
  runs.clear();
  for_runs(Slice{{{1, 3}, {4, 5}}, {0, 5}}, 5,
           [&](int64_t first, int64_t count, int64_t at) { runs.push_back({first, count, at}); });
  EXPECT_EQ(runs, (std::vector<std::array<int64_t, 3>>{{5, 10, 0}, {20, 5, 10}}));
  std::vector<Range> rows;
  for_rows(slice, 1, 3, [&](const Range& range) { rows.push_back(range); });
  EXPECT_EQ(rows, (std::vector<Range>{{2, 3}, {4, 5}}));
}

}  // namespace
}  // namespace ingot::spec
