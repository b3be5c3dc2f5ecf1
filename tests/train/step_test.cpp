#include "train/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/half.h"
#include "tensor/tolerance.h"
#include "tests/host_heap.h"
#include "tests/train/small_run.h"

namespace ingot::train {
namespace {

const std::vector<std::string> last_layer = {"layers.2.self_attn.q_proj", "layers.2.self_attn.o_proj",
                                             "layers.2.mlp.down_proj"};

// The norm of all gradients together, divided by `loss_tokens`, in double.
double norm_of(const std::vector<std::vector<float>>& gradients, int64_t loss_tokens) {
  double squares = 0;
  for (const std::vector<float>& gradient : gradients) {
    for (float g : gradient) squares += static_cast<double>(g) * static_cast<double>(g);
  }
  return std::sqrt(squares) / static_cast<double>(loss_tokens);
}

TEST(Step, ANonFiniteLossChangesNothing) {
  SmallRun run({});
  const std::vector<data::PackedSequence> batch = run.sequences(2);
  EXPECT_FALSE(run.run(1, 1e-3, batch).skipped);
  run.weights.parameters[0].matrix.tensor().as<float>()[batch[0].ids[0] * run.spec.hidden] = INFINITY;
  const std::vector<std::vector<float>> before = state_of(*run.optimizer_state);
  const StepResult result = run.run(2, 1e-3, batch);
  EXPECT_TRUE(result.skipped);
  EXPECT_EQ(state_of(*run.optimizer_state), before);
}

SmallRun fixed_run(bool tied, std::optional<spec::LoraSpec> lora, int64_t micro, int threads) {
  SmallRun::Settings settings;
  settings.spec = small_spec(tied);
  settings.lora = std::move(lora);
  settings.types.fixed_point_sums = true;
  settings.threads = threads;
  settings.step.micro = micro;
  settings.step.accumulation_units = 6;
  return SmallRun(settings);
}

// The bits do not depend on the micro-batch or threads, and agree with fp32 sums to rounding.
TEST(FixedStep, DoesNotDependOnMicroBatchesOrThreads) {
  for (const bool tied : {false, true}) {
    for (const bool adapter : {false, true}) {
      const auto lora = adapter ? std::optional(small_lora()) : std::nullopt;
      const auto train = [&](SmallRun run) {
        std::vector<double> losses;
        for (int64_t step = 1; step <= 3; ++step) losses.push_back(run.run(step, 1e-2, run.sequences(6)).loss);
        return std::pair(losses, state_of(*run.optimizer_state));
      };
      const auto expected = train(fixed_run(tied, lora, 1, 1));
      for (const auto& [micro, threads] : {std::pair<int64_t, int>{2, 2}, {4, 1}, {6, 2}}) {
        EXPECT_EQ(train(fixed_run(tied, lora, micro, threads)), expected) << micro;
      }
      SmallRun::Settings plain;
      plain.spec = small_spec(tied);
      plain.lora = lora;
      const auto in_fp32 = train(SmallRun(plain));
      for (size_t i = 0; i < in_fp32.first.size(); ++i) {
        EXPECT_NEAR(expected.first[i] / in_fp32.first[i], 1, tolerance(DType::f32, 24 * 6));
      }
    }
  }
}

// A range that a contribution exceeds is detected and increased, and the step is repeated.
TEST(FixedStep, IsRepeatedWithLargerRanges) {
  SmallRun expected = fixed_run(false, std::nullopt, 2, 1), run = fixed_run(false, std::nullopt, 2, 1);
  const std::vector<data::PackedSequence> batch = run.sequences(6);
  auto* ranges = run.optimizer_state->ranges().as<int32_t>();
  ranges[1] = -80;
  run.step->begin(1, 1e-2, batch, SmallRun::samples(6));
  run.step->begin(2, 1e-2, batch, SmallRun::samples(6));
  const std::vector<std::vector<float>> before = state_of(*run.optimizer_state);
  const StepResult first = run.step->finish();
  EXPECT_TRUE(first.retry);
  EXPECT_EQ(state_of(*run.optimizer_state), before);
  EXPECT_EQ(run.optimizer_state->updates(), 0);
  EXPECT_GT(ranges[1], -80);
  const StepResult again = run.run(1, 1e-2, batch);
  EXPECT_FALSE(again.skipped);
  const StepResult plain = expected.run(1, 1e-2, batch);
  EXPECT_EQ(again.loss, plain.loss);
  EXPECT_NEAR(again.grad_norm / plain.grad_norm, 1, tolerance(DType::f32, 24 * 6));
  // From here on ranges follow the gradients, which are nearly the same.
  EXPECT_EQ(std::vector(ranges, ranges + 4), std::vector(expected.optimizer_state->ranges().as<int32_t>(),
                                                         expected.optimizer_state->ranges().as<int32_t>() + 4));
}

TEST(FixedStep, MoreAccumulationUnitsThanReservedAreRefused) {
  SmallRun run = fixed_run(false, std::nullopt, 2, 1);
  EXPECT_THROW(run.run(1, 1e-2, run.sequences(7)), Error);
  EXPECT_FALSE(run.run(1, 1e-2, run.sequences(6)).skipped);
}

TEST(FixedStep, ANonFiniteContributionSkipsTheStepAndKeepsItsRange) {
  SmallRun run = fixed_run(false, std::nullopt, 1, 1);
  const std::vector<data::PackedSequence> batch = run.sequences(6);
  EXPECT_FALSE(run.run(1, 1e-3, batch).skipped);
  const auto* ranges = run.optimizer_state->ranges().as<int32_t>();
  const std::vector<int32_t> kept(ranges, ranges + run.optimizer_state->tensors().size());
  const Tensor embedding = run.weights.parameters[0].matrix.tensor();
  const float was = std::exchange(embedding.as<float>()[batch[0].ids[0] * run.spec.hidden], INFINITY);
  const StepResult result = run.run(2, 1e-3, batch);
  EXPECT_TRUE(result.skipped);
  EXPECT_FALSE(result.retry);
  embedding.as<float>()[batch[0].ids[0] * run.spec.hidden] = was;
  EXPECT_FALSE(run.run(3, 1e-3, batch).skipped);
  EXPECT_EQ(run.optimizer_state->updates(), 2);
}

// The final norm and the head compensate each other: the loss is finite and the head's gradient overflows.
TEST(Step, AnOverflowingGradientUnderAFiniteLossChangesNothing) {
  SmallRun run({});
  const std::vector<spec::ParamSpec> table = spec::parameters(run.spec);
  for (size_t i = 0; i < table.size(); ++i) {
    const Parameter& p = run.weights.parameters[i];
    if (table[i].name == "model.norm.weight") {
      for (int64_t j = 0; j < run.spec.hidden; ++j) p.vector.as<float>()[j] = 3e37F;
    } else if (table[i].role == spec::Role::head) {
      for (int64_t j = 0; j < table[i].elements(); ++j) p.matrix.tensor().as<float>()[j] *= 1e-37F;
    }
  }
  std::vector<data::PackedSequence> batch = run.sequences(4);
  for (data::PackedSequence& sequence : batch) {
    sequence.ids.assign(sequence.ids.size(), 7);
    for (int32_t& target : sequence.targets) target = target < 0 ? -1 : 3;
  }
  const std::vector<std::vector<float>> before = state_of(*run.optimizer_state);
  const StepResult result = run.run(1, 1e-3, batch);
  EXPECT_TRUE(std::isfinite(result.loss));
  EXPECT_FALSE(std::isfinite(result.grad_norm));
  EXPECT_TRUE(result.skipped);
  EXPECT_EQ(state_of(*run.optimizer_state), before);
}

TEST(Step, WithoutLossTokensNothingChanges) {
  SmallRun run({.step = {.sequence_length = 24, .optimizer = {.weight_decay = 0.1}}});
  std::vector<data::PackedSequence> batch = run.sequences(2);
  for (data::PackedSequence& sequence : batch) {
    sequence.targets.assign(sequence.targets.size(), -1);
    sequence.loss_tokens = 0;
  }
  const std::vector<std::vector<float>> before = state_of(*run.optimizer_state);
  const StepResult result = run.run(1, 1e-2, batch);
  EXPECT_TRUE(result.skipped);
  EXPECT_EQ(result.loss_tokens, 0);
  EXPECT_EQ(result.tokens, 48);
  EXPECT_EQ(state_of(*run.optimizer_state), before);
}

TEST(Step, PaddingIsNotCountedAsTokens) {
  SmallRun run({.step = {.sequence_length = 24}});
  std::vector<data::PackedSequence> batch = run.sequences(2);  // 5 and 19 tokens, 6 and 18
  batch[0].sample_ids = {0, -1};
  batch[1].sample_ids = {1, 2};
  std::fill(batch[0].targets.begin() + batch[0].offsets[1], batch[0].targets.end(), -1);
  batch[0].loss_tokens = std::ranges::count_if(batch[0].targets, [](int32_t target) { return target >= 0; });
  const StepResult result = run.run(1, 1e-3, batch);
  EXPECT_EQ(result.positions, 48);
  EXPECT_EQ(result.tokens, 5 + 24);
  EXPECT_EQ(result.squared_lengths, 5 * 5 + 6 * 6 + 18 * 18);
}

// AdamW's bias correction counts updates, not steps: after a skipped step training continues as if it had not happened.
TEST(Step, ASkippedStepIsNotCountedAsAnUpdate) {
  SmallRun with({}), without({});
  const std::vector<data::PackedSequence> batch = with.sequences(2);
  std::vector<data::PackedSequence> nothing = batch;
  for (data::PackedSequence& sequence : nothing) {
    sequence.targets.assign(sequence.targets.size(), -1);
    sequence.loss_tokens = 0;
  }
  with.run(1, 1e-2, batch);
  EXPECT_TRUE(with.run(2, 1e-2, nothing).skipped);
  with.run(3, 1e-2, batch);
  without.run(1, 1e-2, batch);
  without.run(2, 1e-2, batch);
  EXPECT_EQ(with.optimizer_state->updates(), 2);
  EXPECT_EQ(state_of(*with.optimizer_state), state_of(*without.optimizer_state));
}

// A step started before the previous result is known gives the same result.
TEST(Step, InFlightStepsGiveTheSameResult) {
  const SmallRun::Settings settings{.step = {.sequence_length = 24, .micro = 2}};
  SmallRun ahead(settings), after(settings);
  const auto batch = [&](int64_t step) {
    std::vector<data::PackedSequence> all = ahead.sequences(3 + step);
    if (step == 3) {
      for (data::PackedSequence& sequence : all) sequence.loss_tokens = 0;
      for (data::PackedSequence& sequence : all) sequence.targets.assign(sequence.targets.size(), -1);
    }
    return all;
  };
  const auto begin = [&](int64_t step) {
    const std::vector<data::PackedSequence> sequences = batch(step);
    ahead.step->begin(step, 1e-2, sequences, SmallRun::samples(std::ssize(sequences)));
  };
  begin(1);
  for (int64_t step = 1; step <= 5; ++step) {
    if (step < 5) begin(step + 1);
    const StepResult expected = after.run(step, 1e-2, batch(step));
    const StepResult found = ahead.step->finish();
    EXPECT_EQ(found.loss, expected.loss) << step;
    EXPECT_EQ(found.grad_norm, expected.grad_norm) << step;
    EXPECT_EQ(found.tokens, expected.tokens);
    EXPECT_EQ(found.loss_tokens, expected.loss_tokens);
    EXPECT_EQ(found.skipped, step == 3);
  }
  EXPECT_EQ(ahead.optimizer_state->updates(), 4);
  EXPECT_EQ(state_of(*ahead.optimizer_state), state_of(*after.optimizer_state));
}

// Steps in flight after a step with a non-finite gradient change nothing and can be repeated.
TEST(Step, ANonFiniteStepHaltsStepsInFlight) {
  SmallRun with({}), without({});
  const std::vector<data::PackedSequence> batch = with.sequences(2);
  const std::vector<int64_t> samples = SmallRun::samples(2);
  with.run(1, 1e-2, batch);
  without.run(1, 1e-2, batch);
  const std::vector<std::vector<float>> before = state_of(*with.optimizer_state);
  float& one = with.weights.parameters[0].matrix.tensor().as<float>()[batch[0].ids[0] * with.spec.hidden];
  const float was = std::exchange(one, INFINITY);
  with.step->begin(2, 1e-2, batch, samples);
  one = was;
  with.step->begin(3, 1e-2, batch, samples);
  EXPECT_THROW(with.step->begin(4, 1e-2, batch, samples), Error);
  EXPECT_THROW(with.step->evaluate(batch), Error);
  EXPECT_TRUE(with.step->finish().skipped);
  EXPECT_THROW(with.step->finish(), Error);
  EXPECT_EQ(with.optimizer_state->updates(), 1);
  EXPECT_EQ(state_of(*with.optimizer_state), before);
  with.step->begin(3, 1e-2, batch, samples);
  EXPECT_FALSE(with.step->finish().skipped);
  without.run(3, 1e-2, batch);
  EXPECT_EQ(state_of(*with.optimizer_state), state_of(*without.optimizer_state));
}

// Blocks below the lowest adapted one have no backward pass and save nothing. The gradients of the layers above must
// not change.
TEST(Step, AdaptingOnlyTheLastLayerGivesTheSameGradients) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const spec::Recompute recompute : {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full}) {
      const StepSettings step{.activation = type, .recompute = recompute, .sequence_length = 24, .micro = 2};
      SmallRun all({.lora = small_lora(), .weights = type, .step = step});
      SmallRun some({.lora = small_lora(last_layer), .weights = type, .step = step});
      EXPECT_EQ(some.optimizer_state->lowest_trainable_layer(), 2);
      int64_t found = 0;
      const auto for_common_tensors = [&](auto&& fn) {
        for (const TrainedParameter& t : some.optimizer_state->tensors()) {
          for (const TrainedParameter& u : all.optimizer_state->tensors()) {
            if (u.name == t.name) fn(t, u);
          }
        }
      };
      some.randomise_b(1);
      for_common_tensors([&](const TrainedParameter& t, const TrainedParameter& u) {
        all.device.copy_from_host(u.master.data, t.master.data, t.master.bytes());
      });
      all.optimizer_state->refresh_weights(all.step->context());
      const std::vector<data::PackedSequence> batch = all.sequences(3);
      EXPECT_EQ(all.run(1, 0, batch).loss, some.run(1, 0, batch).loss);
      for_common_tensors([&](const TrainedParameter& t, const TrainedParameter& u) {
        EXPECT_EQ(floats(t.gradient), floats(u.gradient))
            << t.name << " " << name(type) << " " << spec::name(recompute);
        EXPECT_GT(norm_of({floats(t.gradient)}, 1), 0) << t.name;
        ++found;
      });
      EXPECT_EQ(found, 6);
    }
  }
}

TEST(Step, DropoutDependsOnSampleAndStep) {
  const auto gradients = [](double dropout, int64_t micro, spec::Recompute recompute, int64_t at, uint64_t seed = 0) {
    spec::LoraSpec lora = small_lora({"all-linear"});
    lora.dropout = dropout;
    SmallRun run({.lora = lora, .step = {.recompute = recompute, .sequence_length = 24, .micro = micro, .seed = seed}});
    run.randomise_b(1);
    const double evaluated = run.step->evaluate({run.sequences(1)}).at(0);
    run.run(at, 0, run.sequences(5));
    return std::pair(gradients_of(*run.optimizer_state), evaluated);
  };
  const auto expected = gradients(0.3, 1, spec::Recompute::none, 1);
  for (const int64_t micro : {2, 5}) EXPECT_EQ(gradients(0.3, micro, spec::Recompute::none, 1).first, expected.first);
  EXPECT_EQ(gradients(0.3, 2, spec::Recompute::full, 1).first, expected.first);
  EXPECT_EQ(gradients(0.3, 2, spec::Recompute::selective, 1).first, expected.first);
  EXPECT_NE(gradients(0.3, 1, spec::Recompute::none, 2).first, expected.first);
  EXPECT_NE(gradients(0.3, 1, spec::Recompute::none, 1, 9).first, expected.first);
  EXPECT_NE(gradients(0, 1, spec::Recompute::none, 1).first, expected.first);
  EXPECT_EQ(gradients(0, 1, spec::Recompute::none, 1).second, expected.second) << "evaluation used dropout";
}

// The loss is computed in chunks of 1,024 tokens of an accumulation unit: the head's adapter gets the right rows in
// each.
TEST(Step, AHeadsAdapterGetsItsRowsInEveryChunkOfTheLoss) {
  const auto gradients = [](int64_t micro) {
    SmallRun::Settings settings;
    settings.spec.context = 2048;
    settings.lora = small_lora({"lm_head", "layers.2.mlp.down_proj"});
    settings.lora->dropout = 0.3;
    settings.step = {.sequence_length = 1100, .micro = micro};
    SmallRun run(settings);
    EXPECT_LT(spec::loss_chunk(run.spec.vocab, true), 1100);
    run.randomise_b(1);
    const StepResult result = run.run(1, 0, run.sequences(3));
    return std::tuple(gradients_of(*run.optimizer_state), result.loss, result.grad_norm);
  };
  const auto expected = gradients(1);
  for (const int64_t micro : {2, 3}) EXPECT_EQ(gradients(micro), expected) << "micro " << micro;
}

TEST(Step, RankStabilisedLoraDividesByTheRoot) {
  const auto loss = [](double alpha, bool rslora) {
    spec::LoraSpec lora = small_lora();
    lora.alpha = alpha;
    lora.rslora = rslora;
    SmallRun run({.lora = lora});
    run.randomise_b(1);
    return run.run(1, 0, run.sequences(1)).loss;
  };
  EXPECT_EQ(loss(8, true), loss(16, false));  // 8 / sqrt(4) = 16 / 4
  EXPECT_NE(loss(8, true), loss(8, false));
}

// After the first step moment1 is (1 - beta1) times the gradient that AdamW received.
TEST(Step, ClippingScalesTheGradientOnly) {
  for (const double clip : {0.0, 0.01, 1e6}) {
    SmallRun run({.step = {.sequence_length = 24, .optimizer = {.clip_grad_norm = clip}}});
    const StepResult result = run.run(1, 1e-3, run.sequences(3));
    const double bound = tolerance(DType::f32, run.optimizer_state->num_parameters());
    EXPECT_NEAR(result.grad_norm / norm_of(gradients_of(*run.optimizer_state), result.loss_tokens), 1, bound);
    ASSERT_GT(result.grad_norm, 0.02);
    std::vector<std::vector<float>> moments;
    for (const TrainedParameter& t : run.optimizer_state->tensors()) moments.push_back(floats(t.state[0].tensor));
    const double seen = norm_of(moments, 1) / (1 - 0.9);
    // PyTorch divides by the norm + 1e-6.
    const double expected = clip == 0.01 ? clip * result.grad_norm / (result.grad_norm + 1e-6) : result.grad_norm;
    EXPECT_NEAR(seen / expected, 1, bound) << "clip " << clip;
  }
}

TEST(Step, TrainsWithEveryTypeOfState) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const DType state : {DType::f32, DType::bf16}) {
      for (const DType master : {DType::f32, DType::bf16}) {
        for (const bool adapter : {false, true}) {
          SmallRun::Settings settings;
          settings.weights = type;
          settings.types = {state, master};
          settings.step.activation = type;
          if (adapter) settings.lora = small_lora();
          SmallRun run(settings);
          const std::vector<data::PackedSequence> batch = run.sequences(2);
          const double first = run.run(1, 1e-2, batch).loss;
          double last = first;
          for (int64_t step = 2; step <= 40; ++step) last = run.run(step, 1e-2, batch).loss;
          EXPECT_LT(last, 0.7 * first) << name(type) << " state " << name(state) << " master " << name(master)
                                       << (adapter ? " LoRA" : " full");
          for (const TrainedParameter& t : run.optimizer_state->tensors()) {
            std::vector<float> rounded = floats(t.master);
            if (t.weight.dtype == DType::bf16) {
              for (float& value : rounded) value = bf16_to_float(float_to_bf16(value));
            }
            EXPECT_EQ(floats(t.weight), rounded) << t.name;
          }
        }
      }
    }
  }
}

// The allocated memory is exactly bytes(), saved activations use all of theirs, and nothing overflows.
TEST(Step, AllocatesExactlyThePredictedBytes) {
  std::vector<std::optional<spec::LoraSpec>> adapters = {std::nullopt, small_lora(), small_lora(last_layer),
                                                         small_lora({"lm_head"})};
  adapters.push_back(small_lora());
  adapters.back()->dropout = 0.1;
  adapters.back()->rank = 16;
  for (const std::optional<spec::LoraSpec>& lora : adapters) {
    for (const auto& [weights, activation] :
         {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}}) {
      if (!lora && weights != activation) continue;  // in full training the compute dtype is the weights'
      for (const bool tied : {false, true}) {
        if (tied && lora && lora->targets.front() == "lm_head") continue;
        for (const spec::Recompute recompute :
             {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full}) {
          for (const auto& [micro, unit, threads] : {std::tuple{1, 1, 1}, {3, 1, 3}, {2, 2, 2}}) {
            SmallRun::Settings settings;
            settings.spec = small_spec(tied);
            settings.lora = lora;
            settings.weights = weights;
            settings.threads = threads;
            settings.step = {.activation = activation,
                             .recompute = recompute,
                             .sequence_length = 24,
                             .micro = micro,
                             .accumulation_unit = unit};
            SmallRun run(settings);
            const StepBytes bytes = Step::bytes(run.spec, settings.step, run.optimizer_state->lowest_trainable_layer(),
                                                lora ? lora->rank : 0, weights != activation, threads,
                                                run.optimizer_state->update_bytes(), run.device.host_visible());
            EXPECT_EQ(run.step_bytes, bytes.saved + bytes.scratch + bytes.batch);
            const std::vector<data::PackedSequence> batch = run.sequences(micro * unit + unit);
            EXPECT_FALSE(run.run(1, 1e-3, batch).skipped);
            run.step->evaluate(batch);
            EXPECT_EQ(run.step->peak().saved, bytes.saved)
                << spec::name(recompute) << " " << name(activation) << " micro " << micro
                << (lora ? " LoRA of " + lora->targets.front() : std::string(" full"));
            EXPECT_EQ(
                bytes.saved,
                spec::saved_bytes(run.spec, recompute, static_cast<int64_t>(size_of(activation)), micro * unit * 24,
                                  run.spec.num_layers() - run.optimizer_state->lowest_trainable_layer())
                    .total());
          }
        }
      }
    }
  }
}

// All of a step's memory is in its arenas and in the workspace of its threads: the first step of threads that have run
// nothing before takes none of the host's heap. A run before it has filled the tables that a process has once.
TEST(Step, TakesNoMemoryOfTheHost) {
  for (const bool adapter : {false, true}) {
    SmallRun::Settings settings;
    if (adapter) settings.lora = small_lora();
    settings.step = {.sequence_length = 48, .micro = 4};
    int64_t before = 0, after = 0;
    for (int time = 0; time < 2; ++time) {
      SmallRun run(settings);
      const std::vector<data::PackedSequence> batch = run.sequences(8);
      before = host_heap_bytes();
      const size_t device = run.device.allocated();
      for (int64_t step = 1; step <= 4; ++step) EXPECT_FALSE(run.run(step, 1e-3, batch).skipped);
      run.step->evaluate(batch);
      after = host_heap_bytes();
      EXPECT_EQ(run.device.allocated(), device);
    }
    EXPECT_LE(after - before, small_objects) << (adapter ? "LoRA" : "full");
  }
}

}  // namespace
}  // namespace ingot::train
