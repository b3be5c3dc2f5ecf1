#include "tests/train/layout_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "base/error.h"
#include "runs/plan.h"
#include "runs/ranks.h"
#include "tensor/tolerance.h"
#include "tests/train/run_files.h"

namespace ingot::train {

namespace {

constexpr int64_t steps = 10;

Layout layout_of(const ParallelRecipe& parallel) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  return {.tp = number(parallel.tp),
          .stages = number(parallel.pp),
          .dp = number(parallel.dp),
          .zero = number(parallel.zero),
          .schedule = parallel.schedule,
          .chunks = number(*parallel.chunks.value),
          .cp = number(parallel.cp),
          .sequence_parallel = parallel.sequence_parallel,
          .cp_comm_type = parallel.cp_comm_type,
          .ep = number(parallel.ep),
          .shard = number(parallel.shard.value.value_or(0))};
}

// With as many blocks as virtual stages.
spec::ModelSpec model_of(const Combination& c, const ParallelRecipe& parallel) {
  return with_blocks(c.family_case().spec, parallel.pp * *parallel.chunks.value);
}

SmallRun::Settings settings_of(const Combination& c, const Recipe& recipe, const Layout& layout) {
  SmallRun::Settings settings{.spec = model_of(c, recipe.parallel), .threads = 1};
  if (c.adapter) settings.lora = small_lora();
  settings.weights = settings.step.activation = dtype_of(recipe.precision);
  settings.slices = static_cast<int>(recipe.parallel.units);
  settings.bucket_bytes = recipe.parallel.bucket_mib << 20;
  if (recipe.determinism == Determinism::bitwise) {
    settings.types.fixed_point_sums = true;
    settings.step.accumulation_units = sequences;
  } else {
    settings.types.optimizer = OptimizerName::sgd;  // difference() says why
  }
  settings.step.optimizer.clip_grad_norm = 0.5;
  settings.step.micro = layout.dp * layout.stages == 1 ? 3 : 1;
  return settings;
}

double rounding(const SmallRun::Settings& settings) {
  return settings.weights == DType::f32 ? rounding_of(settings.spec, steps) : tolerance(DType::bf16, 24);
}

}  // namespace

const std::vector<std::string>& grid_layouts() {
  static const std::vector<std::string> layouts = {
      "tp: 2",
      "tp: 4",
      "pp: 2, schedule: gpipe",
      "pp: 2, schedule: 1f1b",
      "pp: 2, schedule: interleaved",
      "pp: 2, schedule: zb_h1",
      "pp: 2, schedule: zb_v",
      "pp: 4, schedule: gpipe",
      "pp: 4, schedule: 1f1b",
      "pp: 4, schedule: interleaved",
      "pp: 4, schedule: zb_h1",
      "pp: 4, schedule: zb_v",
      "dp: 2, zero: 1",
      "dp: 2, zero: 2",
      "dp: 2, zero: 3",
      "cp: 2",
      "cp: 2, cp_comm_type: allgather",
      "cp: 2, cp_comm_type: p2p",
      "dp: 2, ep: 2",
      "dp: 2, zero: 2, ep: 2",
      // Of eight ranks.
      "dp: 8, zero: 2, shard: 4, bucket_mib: 1",
      "dp: 4, zero: 3, shard: 4, cp: 2",
      "dp: 2, zero: 3, tp: 4, sequence_parallel: true",
      "dp: 2, zero: 2, shard: 2, tp: 2, cp: 2",
      "dp: 2, zero: 1, tp: 2, pp: 2, schedule: 1f1b, sequence_parallel: true",
      "dp: 4, zero: 1, shard: 2, pp: 2, schedule: zb_v",
      "dp: 2, zero: 3, tp: 2, pp: 2, schedule: 1f1b",
      "dp: 4, zero: 3, shard: 2, pp: 2, schedule: zb_v",
      "dp: 2, pp: 4, schedule: interleaved",
      "tp: 2, cp: 2, pp: 2, schedule: zb_h1",
      "tp: 2, pp: 4, schedule: zb_h1, sequence_parallel: true",
      "dp: 4, zero: 2, shard: 2, tp: 2, sequence_parallel: true, ep: 2",
      "dp: 4, zero: 3, tp: 2, ep: 2",
      "dp: 2, zero: 1, cp: 2, pp: 2, schedule: zb_h1, ep: 2",
  };
  return layouts;
}

std::string Combination::name() const {
  return fmt::format("{}, {}, {}, {}, {{{}}}", family_case().name, adapter ? "adapter" : "full", train::name(precision),
                     determinism == Determinism::bitwise ? "bitwise" : "fast", grid_layouts()[layout]);
}

std::vector<Combination> layout_grid() {
  std::vector<Combination> all;
  for (size_t family = 0; family < models::family_cases().size(); ++family) {
    for (const bool adapter : {false, true}) {
      for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        for (const Determinism determinism : {Determinism::bitwise, Determinism::fast}) {
          for (size_t layout = 0; layout < grid_layouts().size(); ++layout)
            all.push_back({family, adapter, precision, determinism, layout});
        }
      }
    }
  }
  return all;
}

std::vector<Combination> layout_sample() {
  std::vector<Combination> sample;
  const std::vector<Combination> all = layout_grid();
  for (size_t i = 0; i < all.size(); i += 11) sample.push_back(all[i]);
  return sample;
}

Recipe recipe_of(const Combination& c) {
  const RunFiles files("grid");
  const std::filesystem::path path = files.path() / "recipe.yaml";
  const bool bitwise = c.determinism == Determinism::bitwise;
  std::ofstream(path) << fmt::format(
      "{{name: grid, model: m, steps: {}, batch: {{global: {}}}, data: {{sequence_length: {}}}, precision: {}, "
      "determinism: {}, parallel: {{{}}}}}\n",
      steps, sequences, SmallRun::Settings().step.sequence_length, name(c.precision), bitwise ? "bitwise" : "fast",
      grid_layouts()[c.layout]);
  const auto read = [&](const std::vector<std::string>& more) {
    Recipe recipe = read_recipe(path, more);
    recipe.parallel.resolve();
    return recipe;
  };
  const ParallelRecipe p = read({"determinism=fast"}).parallel;
  if (!bitwise || p.tp * p.cp == 1) return read({});
  const int64_t needed = p.sequence_parallel ? p.tp * p.cp : std::max(p.tp, p.cp);
  return read({fmt::format("parallel.units={}", std::max<int64_t>(needed, max_slices(c.family_case().spec)))});
}

std::string refusal_of(const Combination& c) {
  try {
    const Recipe recipe = recipe_of(c);
    const spec::ModelSpec model = model_of(c, recipe.parallel);
    for (int64_t rank = 0; rank < recipe.parallel.ranks(); ++rank)
      runs::check_share(recipe, model, runs::share_of(recipe.parallel, rank));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::unsupported) throw;
    return error.message();
  }
  return {};
}

Comparison GridRuns::compare(const Combination& c) {
  Comparison result{.refused = refusal_of(c)};
  if (!result.refused.empty()) return result;
  const Recipe recipe = recipe_of(c);
  const Layout layout = layout_of(recipe.parallel);
  const SmallRun::Settings settings = settings_of(c, recipe, layout);
  const auto [one, is_new] = one_rank_.try_emplace(fmt::format("{} {} {} {} {} {}", c.family, c.adapter,
                                                               name(c.precision), c.determinism == Determinism::bitwise,
                                                               settings.slices, settings.spec.num_layers()));
  if (is_new) {
    SmallRun::Settings alone = settings;
    alone.step.micro = 1;
    train(one->second, alone, {1, 1, 1, 0}, steps);
  }
  Outcome found;
  const auto began = std::chrono::steady_clock::now();
  train(found, settings, layout, steps);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  result.difference = difference(one->second, found, settings.weights, rounding(settings));
  result.equal = c.determinism == Determinism::bitwise ? result.difference.bits : result.difference.of_allowed <= 1;
  return result;
}

}  // namespace ingot::train
