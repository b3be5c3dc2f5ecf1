// ingot data order: lists the samples that each step of a recipe trains on.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/machine.h"
#include "checkpoint/text_assets.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "data/sampler.h"
#include "data/streaming_sampler.h"
#include "runs/data.h"
#include "runs/plan.h"

namespace ingot::cli {

namespace {

using Json = nlohmann::ordered_json;

class DataOrder : public Command {
 public:
  const char* name() const override { return "order"; }
  const char* summary() const override { return "print the samples of each step of a recipe, one JSON line per step"; }
  bool reports() const override { return true; }

  void declare(Arguments& a) override {
    a.positional("recipe", recipe_path_, "a recipe (YAML)");
    a.positional("overrides", overrides_, "settings that replace the recipe's, for instance data.seed=3", false);
    a.option("epoch", epoch_, "only steps that start in this epoch, counted from 0 (default: the whole run)");
    a.option("from-step", from_, "the first step, counted from 0");
    a.option("steps", number_, "number of steps");
    a.flag("indices", indices_,
           "data.order megatron: print its document, sample, shuffle and blend indices, and those of the held-out "
           "data, instead");
    a.option("ranks", ranks_, "data.order streaming: ranks per node; also lists the samples of each worker");
    a.option("workers", workers_, "data.order streaming: workers per rank");
    a.option("nodes", nodes_, "data.order streaming: number of nodes with which the run is continued");
    a.example("ingot data order recipe.yaml --from-step 100 --steps 5");
  }

  int run(const Output& output) override;

 private:
  // Steps [begin, end).
  struct Range {
    int64_t begin = 0, end = 0;
  };
  Range range(int64_t steps, std::optional<Range> epoch) const;
  int megatron_order(const Output& output, train::Recipe& recipe) const;
  static int64_t first_of(int64_t epoch, int64_t length);
  int streaming_order(const Output& output, const train::Recipe& recipe) const;
  int ingot_order(const Output& output, train::Recipe& recipe) const;

  std::string recipe_path_;
  std::vector<std::string> overrides_;
  std::optional<int64_t> epoch_, from_, number_, ranks_, workers_, nodes_;
  bool indices_ = false;
};

// Prints step after step; with --json all of them as one object.
class Lines {
 public:
  explicit Lines(const Output& output) : output_(output) {}
  void add(Json line) {
    if (output_.json()) {
      all_.push_back(std::move(line));
    } else {
      output_.print(json_line(line) + "\n");
    }
  }
  void finish() { output_.print_json(json_line({{"steps", std::move(all_)}})); }

 private:
  const Output& output_;
  Json all_ = Json::array();
};

int DataOrder::run(const Output& output) {
  if (epoch_.value_or(0) == std::numeric_limits<int64_t>::max())
    throw_error(ErrorKind::usage, "--epoch is out of range");
  if (epoch_ && from_) throw_error(ErrorKind::usage, "--epoch and --from-step are mutually exclusive");
  if (epoch_.value_or(0) < 0 || from_.value_or(0) < 0 || number_.value_or(1) < 1) {
    throw_error(ErrorKind::usage, "--epoch and --from-step must be at least 0, --steps at least 1");
  }
  exit_on_interrupt();
  train::Recipe recipe = train::read_recipe(recipe_path_, overrides_);
  train::require_training_data(recipe);
  if (recipe.data.order == train::Order::megatron) return megatron_order(output, recipe);
  if (indices_) {
    throw_hint(ErrorKind::usage, "set data.order: megatron", "--indices needs data.order: megatron");
  }
  if (recipe.data.order == train::Order::streaming) return streaming_order(output, recipe);
  if (ranks_ || workers_ || nodes_) {
    throw_hint(ErrorKind::usage, "set data.order: streaming",
               "--nodes, --ranks and --workers need data.order: streaming");
  }
  return ingot_order(output, recipe);
}

// Reads only the indexes of the data.
int DataOrder::streaming_order(const Output& output, const train::Recipe& recipe) const {
  const data::StreamingOrder order = runs::read_streaming_order(recipe);
  const data::StreamingWorld followed = recipe.data.streaming.value_or(train::StreamingRecipe{}).cluster();
  const data::StreamingWorld world{nodes_.value_or(followed.nodes), ranks_.value_or(followed.ranks),
                                   workers_.value_or(1)};
  const int64_t global = recipe.batch.global;
  constexpr int64_t max_extent = 100'000;  // as recipes allow; their product is counted
  if (std::max({world.nodes, world.ranks, world.workers}) > max_extent) {
    throw_error(ErrorKind::usage, "--nodes {} --ranks {} --workers {}: must be at most {} each", world.nodes,
                world.ranks, world.workers, max_extent);
  }
  if (world.nodes < 1 || world.ranks < 1 || world.workers < 1 || global % world.num_ranks() != 0) {
    throw_error(ErrorKind::usage, "{} nodes of {} ranks of {} workers cannot evenly share a global batch of {}",
                world.nodes, world.ranks, world.workers, global);
  }
  const data::StreamingSampler sampler(order, followed, order.num_samples(), global);
  const int64_t of_epoch = sampler.steps_per_epoch();
  std::optional<Range> epoch;
  if (epoch_) epoch = {first_of(*epoch_, of_epoch), first_of(*epoch_ + 1, of_epoch)};
  const Range wanted =
      range(recipe.epochs ? static_cast<int64_t>(std::ceil(*recipe.epochs * static_cast<double>(of_epoch)))
                          : runs::steps_of(recipe, 0),
            epoch);
  const int64_t batch = global / world.num_ranks();
  data::StreamingState state = order.begin(followed);
  data::WorkerSamples work;
  int64_t first = -1;  // index in the epoch of the first step in `work`
  Lines lines(output);
  for (int64_t step = wanted.begin; step < wanted.end; ++step) {
    Json line = {{"step", step}, {"samples", sampler.step_samples(step)}};
    if (ranks_ || workers_ || nodes_) {
      // As in a run that is resumed here: the rest of the epoch is divided anew.
      if (first < 0 || step % of_epoch == 0) {
        state.epoch = step / of_epoch;
        first = step % of_epoch;
        state.sample_in_epoch = first * global;
        work = order.work(world, batch, state);
      }
      if (step % of_epoch - first >= work.num_full_batches()) {
        throw_hint(ErrorKind::usage,
                   "set data.streaming.nodes and data.streaming.ranks to the cluster whose order is reproduced",
                   "step {}: this epoch has {} batches on {} nodes of {} ranks, but {} on the recipe's {} of {}", step,
                   first + work.num_full_batches(), world.nodes, world.ranks, of_epoch, followed.nodes, followed.ranks);
      }
      Json workers = Json::array();
      for (int64_t rank = 0; rank < world.num_ranks(); ++rank) {
        const int64_t q = step % of_epoch - first;
        std::vector<int64_t> samples;
        for (int64_t b = 0; b < batch; ++b) samples.push_back(work.at(rank, q, b));
        workers.push_back({{"node", rank / world.ranks},
                           {"rank", rank % world.ranks},
                           {"worker", q % world.workers},
                           {"samples", samples}});
      }
      line["workers"] = std::move(workers);
    }
    lines.add(std::move(line));
  }
  lines.finish();
  return 0;
}

// The first index of an epoch, where an epoch has `length` indices.
int64_t DataOrder::first_of(int64_t epoch, int64_t length) {
  int64_t first = 0;
  if (__builtin_mul_overflow(epoch, length, &first) || first > std::numeric_limits<int64_t>::max() / 2) {
    throw_error(ErrorKind::usage, "--epoch {} is too large", epoch);
  }
  return first;
}

DataOrder::Range DataOrder::range(int64_t steps, std::optional<Range> epoch) const {
  Range range{from_.value_or(0), steps};
  if (epoch) range = *epoch;
  if (range.begin >= range.end) {
    throw_error(ErrorKind::usage, "the requested steps are outside the run's steps 0 to {}", steps - 1);
  }
  if (number_ && *number_ < range.end - range.begin) range.end = range.begin + *number_;
  return range;
}

Json indices_of(const data::MegatronDataset& set) {
  Json sources = Json::array();
  for (const data::MegatronDataset::Member& member : set.members()) {
    Json samples = Json::array();
    const data::MegatronIndex& index = member.index;
    for (size_t i = 0; i < index.positions.size(); ++i) samples.push_back({index.positions[i], index.offsets[i]});
    sources.push_back({{"path", member.file.source()},
                       {"epochs", index.num_epochs},
                       {"separate_final_epoch", index.separate_final_epoch},
                       {"document_index", index.documents},
                       {"sample_index", std::move(samples)},
                       {"shuffle_index", index.shuffle}});
  }
  Json result = {{"sources", std::move(sources)}};
  if (set.members().size() > 1) {
    result["dataset_index"] = set.blend().source;
    result["dataset_sample_index"] = set.blend().sample;
  }
  return result;
}

int DataOrder::megatron_order(const Output& output, train::Recipe& recipe) const {
  if (epoch_) {
    throw_hint(ErrorKind::usage, "use --from-step",
               "--epoch is not supported with data.order: megatron, which shuffles all epochs of a run together");
  }
  constexpr int64_t any_token = std::numeric_limits<int32_t>::max();
  const data::MegatronDataset set = runs::read_megatron(recipe, any_token, std::nullopt);
  if (indices_) {
    if (from_ || number_)
      throw_error(ErrorKind::usage,
                  "--indices covers the whole run; it cannot be combined with --from-step or --steps");
    Json result = indices_of(set);
    if (!recipe.data.split.empty()) {
      const auto held_out = runs::read_megatron_split(recipe, any_token, std::nullopt, Log(LogLevel::warning));
      if (held_out) result["held_out"] = indices_of(*held_out);
    }
    output.print(json_line(result) + "\n");
    output.print_json(json_line(result));
    return 0;
  }
  const Range wanted = range(*recipe.steps, std::nullopt);
  Lines lines(output);
  for (int64_t step = wanted.begin; step < wanted.end; ++step) {
    std::vector<int64_t> sources, samples;
    for (int64_t i = 0; i < recipe.batch.global; ++i) {
      const data::MegatronDataset::SourceSample located = set.locate(step * recipe.batch.global + i);
      sources.push_back(located.source);
      samples.push_back(located.sample);
    }
    Json line = {{"step", step}, {"samples", samples}};
    if (set.members().size() > 1) line["sources"] = sources;
    lines.add(std::move(line));
  }
  lines.finish();
  return 0;
}

int DataOrder::ingot_order(const Output& output, train::Recipe& recipe) const {
  const checkpoint::TextAssets text = checkpoint::load_text(checkpoint::open_model(recipe.model));
  ThreadPool threads(static_cast<int>(recipe.threads.value.value_or(available_cpus())), {}, no_workspace);
  recipe.data.eval.values.clear();
  const runs::RunData data =
      runs::read_run_data(recipe, text, std::numeric_limits<int32_t>::max(), threads, Log(LogLevel::warning));
  const int64_t sequences = data.train->num_sequences(), batch = recipe.batch.global;
  std::optional<Range> epoch;
  if (epoch_) {
    const auto begin = [&](int64_t e) { return (first_of(e, sequences) + batch - 1) / batch; };
    epoch = {begin(*epoch_), begin(*epoch_ + 1)};
  }
  const Range wanted = range(runs::steps_of(recipe, sequences, data.train->statistics().packing_efficiency), epoch);
  Lines lines(output);
  for (int64_t step = wanted.begin; step < wanted.end; ++step) {
    lines.add({{"step", step}, {"samples", data.order->step_samples(step)}});
  }
  lines.finish();
  return 0;
}

}  // namespace

std::unique_ptr<Command> data_order_command() { return std::make_unique<DataOrder>(); }

}  // namespace ingot::cli
