#include "runs/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/cpu_list.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "checkpoint/load.h"
#include "comm/launcher.h"
#include "runs/affinity.h"
#include "runs/inputs.h"
#include "runs/machine_file.h"
#include "runs/model.h"
#include "runs/plan.h"
#include "runs/ranks.h"
#include "runs/samples.h"
#include "spec/sizes.h"
#include "train/step_traffic.h"

namespace ingot::runs {

namespace {

// With more ranks than this, the first of each pipeline stage stands for the others.
constexpr int64_t max_listed = 64;

void refuse_launcher() {
  const std::optional<comm::Launch> launch = comm::find_launch(environment);
  if (!launch) return;
  throw_hint(ErrorKind::usage, fmt::format("run it without {}, with parallel.dp=N", launch->launcher),
             "--dry-run plans all ranks in one process, and {} has started {}", launch->launcher, launch->size);
}

// The first rank's device, with all ranks on this machine; or what stands for a GPU of `machine`.
runtime::Runtime first_runtime(const train::Recipe& recipe, int64_t ranks, const std::optional<MachineFile>& machine) {
  if (machine) return runtime::open_runtime(machine->stand_in(), 1);
  const auto all = static_cast<int>(ranks);
  std::optional<int64_t> threads = recipe.threads.value;
  if (recipe.affinity == "auto" && !threads) threads = ranks * std::max<int64_t>(1, num_cores() / ranks);
  return open_runtime_at(recipe.device, threads, train::cpus_of(recipe.affinity),
                         {.ranks = all, .locals = all, .cpu_sharers = ranks});
}

// The communication of a rank in a step.
std::string traffic_table(const RunPlan& plan) {
  const spec::Traffic traffic =
      train::step_traffic(plan.model, plan.lora, plan.optimizer_types, plan.step, plan.share, plan.weight_units,
                          plan.recipe.batch.global, plan.memory.host_visible);
  if (traffic.sums().empty()) return {};
  std::string text = "  communication of a step\n";
  for (const auto& [kind, sum] : traffic.sums()) {
    text += fmt::format(
        "    {:<20}{:>12} in {} of at most {}\n", fmt::format("{} {}", name_of(kind.axis), name_of(kind.collective)),
        format_bytes(static_cast<size_t>(sum.bytes)), sum.messages, format_bytes(static_cast<size_t>(sum.largest)));
  }
  return text;
}

class DryRun {
 public:
  DryRun(const train::Recipe& recipe, const std::optional<MachineFile>& machine)
      : recipe_(recipe),
        machine_(machine),
        ranks_(recipe.parallel.ranks()),
        log_(LogLevel::info),
        runtime_(first_runtime(recipe, ranks_, machine)),
        has_data_(!recipe.data.train.values.empty()),
        inputs_(has_data_ ? read_run_inputs(recipe_, *runtime_.threads, log_) : read_run_model(recipe_)) {
    if (!has_data_ && recipe.epochs) {
      throw_hint(ErrorKind::usage, "give data.train=PATH, or a length in steps or tokens",
                 "epochs is {}, but without data.train the number of steps is unknown", *recipe.epochs);
    }
    const DeviceKind kind = runtime_.device->kind();
    own_memory_ = machine_ || kind == DeviceKind::cuda || kind == DeviceKind::hip;
    if (machine_) {
      available_ = machine_->memory();
    } else {
      available_ = runtime_.device->memory_available() / static_cast<size_t>(own_memory_ ? 1 : ranks_);
    }
    has_weights_ = recipe_.init == train::InitFrom::random || checkpoint::has_weights(inputs_.source);
    if (!has_data_) {
      recipe_.eval.prompts.clear();
    } else {
      for (const auto& prompt : encode_prompts(recipe_, inputs_.text, inputs_.data))
        longest_prompt_ = std::max(longest_prompt_, std::ssize(prompt));
    }
  }

  std::string text(std::optional<int64_t> rank) {
    if (rank && (*rank < 0 || *rank >= ranks_)) {
      throw_error(ErrorKind::usage, "--rank {}: the layout has the ranks 0 to {} (dp {} x cp {} x pp {} x tp {})",
                  *rank, ranks_ - 1, recipe_.parallel.dp, recipe_.parallel.cp, recipe_.parallel.pp,
                  recipe_.parallel.tp);
    }
    const bool all = ranks_ <= max_listed;
    std::vector<int64_t> numbers;
    const spec::Layout layout = recipe_.parallel.layout();
    for (int64_t i = 0; all && i < ranks_; ++i) numbers.push_back(i);
    for (int64_t stage = 0; !all && stage < layout.pp; ++stage) numbers.push_back(spec::rank_of(layout, {.pp = stage}));
    if (rank && std::ranges::find(numbers, *rank) == numbers.end()) numbers.push_back(*rank);
    plan(numbers);
    std::string tables;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!rank) {
        tables += group(numbers, i);
      } else if (numbers[i] == *rank) {
        tables += fmt::format("rank {}\n{}", *rank, table(i));
      }
    }
    const RunPlan& first = plans_.front();
    const std::string shared = machine_ ? fmt::format(" on {}", machine_->name)
                               : ranks_ > 1 && !own_memory_
                                   ? fmt::format(" a rank, with all {} on this machine", ranks_)
                                   : "";
    std::string text =
        fmt::format("{}\n# memory (available: {}{})\n{}\n# {:.3f} GFLOP a token, {} of {} parameters trained\n",
                    train::write_recipe(first.recipe), format_bytes(available_), shared, tables,
                    first.flops_per_token / 1e9, first.trainable_parameters, spec::num_parameters(first.model));
    if (!has_weights_)
      text += fmt::format("# {} has no weights: planned for its shape\n", inputs_.source.path.string());
    const size_t on_host = first.memory.on_host();
    if (machine_ && on_host > machine_->host_memory()) {
      text += fmt::format("# does not fit: a rank needs {} of host memory, and has {} of {}\n", format_bytes(on_host),
                          format_bytes(machine_->host_memory()), machine_->name);
    }
    if (has_data_) return text;
    text += "# no data.train: estimated for full sequences of one document, without eval.prompts\n";
    const auto most = std::ranges::max_element(plans_, {}, [](const RunPlan& p) { return p.memory.total(); });
    if (!most->fits) {
      text +=
          fmt::format("# does not fit: {} {} and {} are available{}; {}\n", ranks_ > 1 ? "a rank needs" : "it needs",
                      format_bytes(most->memory.total()), format_bytes(available_), shared, memory_hint);
    }
    return text;
  }

 private:
  // Whether ranks would exchange weights through other host memory: GPUs are taken to have their vendor's library.
  bool staged() const {
    const DeviceKind kind = runtime_.device->kind();
    const bool is_gpu = machine_ || kind == DeviceKind::cuda || kind == DeviceKind::hip;
    const train::Collectives how = recipe_.parallel.collectives;
    return !runtime_.device->host_visible() && how != train::Collectives::device &&
           (how == train::Collectives::host || !is_gpu);
  }

  RunPlan plan_of(int64_t rank) {
    const train::ShardSpec share = share_of(recipe_.parallel, rank);
    const WeightPlan weights = plan_weights(recipe_, runtime_, inputs_.source, inputs_.model, share, {staged(), true});
    const auto size = [&](auto how, const data::DatasetStatistics& data, int64_t prompt) {
      return how(recipe_, inputs_.model, data, prompt, weights, available_, runtime_, share, std::nullopt);
    };
    if (!has_data_) return size(size_run, placeholder_statistics(recipe_.data.sequence_length), 0);
    return size(plan_run, inputs_.data.train->statistics(), rank == 0 ? longest_prompt_ : 0);
  }

  // All ranks have the same micro-batch, and write checkpoints in the same way.
  void plan(const std::vector<int64_t>& numbers) {
    for (const int64_t rank : numbers) plans_.push_back(plan_of(rank));
    const auto micro_of = [](const RunPlan& p) { return p.step.micro; };
    const int64_t micro = micro_of(*std::ranges::min_element(plans_, {}, micro_of));
    const int locals = static_cast<int>(ranks_);
    const auto copy_fits = [&](const RunPlan& p) {
      if (machine_) return checkpoint_bytes_of(p) <= machine_->host_memory();
      return checkpoint_copy(p, *runtime_.device, available_, locals).fits();
    };
    const int64_t threads = recipe_.threads.value.value_or(runtime_.threads->threads() * ranks_);
    for (RunPlan& each : plans_) {
      if (each.step.micro != micro) set_micro_batch(each, micro);
    }
    const bool background =
        writes_checkpoints_between_steps(plans_.front().recipe) && std::ranges::all_of(plans_, copy_fits);
    for (RunPlan& each : plans_) {
      each.recipe.threads.value = threads;  // the recipe states the total over all ranks
      set_background_checkpoints(each, background);
    }
  }

  std::string table(size_t index) const { return plans_[index].memory.table() + traffic_table(plans_[index]); }

  // The table of plan `index` for all ranks in a row that have the same; nothing if an earlier one has said it.
  std::string group(const std::vector<int64_t>& numbers, size_t index) const {
    std::string table = this->table(index);
    if (ranks_ == 1) return table;
    if (ranks_ > max_listed) {
      const spec::Layout layout = recipe_.parallel.layout();
      if (layout.order.back() != spec::Axis::pp) {
        return fmt::format("all ranks of stage {}, as for rank {}\n{}", spec::place_of(layout, numbers[index]).pp,
                           numbers[index], table);
      }
      return fmt::format("ranks {} to {}, as for the first of them\n{}", numbers[index],
                         numbers[index] + ranks_ / layout.pp - 1, table);
    }
    if (index > 0 && this->table(index - 1) == table) return {};
    size_t last = index;
    while (last + 1 < plans_.size() && this->table(last + 1) == table) ++last;
    const std::string which = last == index ? fmt::format("rank {}", numbers[index])
                                            : fmt::format("ranks {} to {}", numbers[index], numbers[last]);
    return fmt::format("{}\n{}", which, table);
  }

  // Host memory of a rank with a copy of the state.
  static size_t checkpoint_bytes_of(const RunPlan& p) { return p.memory.optimizer_state.state + p.memory.on_host(); }

  train::Recipe recipe_;
  std::optional<MachineFile> machine_;
  int64_t ranks_;
  Log log_;
  runtime::Runtime runtime_;
  bool has_data_;
  RunInputs inputs_;
  bool has_weights_ = true;
  bool own_memory_ = false;
  size_t available_ = 0;
  int64_t longest_prompt_ = 0;
  std::vector<RunPlan> plans_;
};

}  // namespace

void dry_run(const train::Recipe& recipe, std::optional<int64_t> rank, const std::optional<std::string>& machine,
             const std::function<void(std::string_view)>& print) {
  refuse_launcher();
  std::optional<MachineFile> planned_for;
  if (machine) planned_for = read_machine_file(*machine);
  print(DryRun(recipe, planned_for).text(rank));
}

}  // namespace ingot::runs
