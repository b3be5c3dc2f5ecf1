#include "runs/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/machine.h"
#include "base/strings.h"
#include "models/model.h"
#include "runtime/workspace.h"
#include "spec/flops.h"

namespace ingot::runs {

namespace {

// LoRA rank for an amount of data: about one rank per 4,000 loss tokens for layers of SmolLM's size, a power of two
// from 4 to 64. More data can fill a larger adapter; a small one forgets less of the base model.
int64_t rank_for(int64_t loss_tokens) {
  int64_t rank = 4;
  while (rank < 64 && rank * 2 * 4000 <= loss_tokens) rank *= 2;
  return rank;
}

// More tokens per micro-batch do not make gemms faster on any device we measured.
constexpr int64_t max_useful_tokens = 4096;

// With 1F1B and m micro-batches for p stages, (p - 1) / (m + p - 1) of the time is idle: a fifth with m = 4 p.
constexpr int64_t micro_batches_per_stage = 4;

std::optional<spec::LoraSpec> resolve_adapter(train::Recipe& r, int64_t loss_tokens) {
  if (!r.adapter) return std::nullopt;
  train::AdapterRecipe& a = *r.adapter;
  if (a.rank.is_auto()) a.rank.value = rank_for(loss_tokens);
  if (a.alpha.is_auto()) a.alpha.value = 2.0 * static_cast<double>(*a.rank.value);
  return spec::LoraSpec{*a.rank.value, *a.alpha.value, a.dropout, a.rslora, a.targets};
}

// An engine for all prompts at once, each with room for its sample.
infer::EngineSettings sample_settings(const RunPlan& plan, int64_t longest_prompt) {
  infer::EngineSettings settings;
  settings.activation = plan.step.activation;
  settings.context = longest_prompt + plan.recipe.eval.sample_tokens;
  if (settings.context > plan.model.context) {
    throw_hint(ErrorKind::usage, "shorten it, or lower eval.sample_tokens",
               "a prompt of eval.prompts has {} tokens; with {} more (eval.sample_tokens) it exceeds the model's "
               "context of {}",
               longest_prompt, plan.recipe.eval.sample_tokens, plan.model.context);
  }
  settings.batch_tokens = 256;
  settings.sequences = static_cast<int64_t>(plan.recipe.eval.prompts.size());
  settings.adapter_rank = plan.lora ? plan.lora->rank : 0;
  settings.decoded = plan.decoded;
  return settings;
}

}  // namespace

checkpoint::WeightStorage weight_storage_of(const train::Recipe& r) {
  return checkpoint::weight_storage(train::fp8_base(r) ? "fp8" : r.weights, train::dtype_of(r.precision)).value();
}

int64_t steps_of(const train::Recipe& r, int64_t sequences, double filled) {
  if (r.steps) return *r.steps;
  const double global = static_cast<double>(r.batch.global);
  if (r.epochs) {
    return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(*r.epochs * static_cast<double>(sequences) / global)));
  }
  const double per_step = global * static_cast<double>(r.data.sequence_length) * filled;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(static_cast<double>(*r.tokens) / per_step)));
}

size_t MemoryPlan::total() const {
  return weights + gathered + optimizer_state.master + optimizer_state.moments + optimizer_state.gradients +
         optimizer_state.adapter + step.saved + step.scratch + step.batch + step.messages + workspace + samples;
}

std::string MemoryPlan::table() const {
  std::string text;
  const auto row = [&](const char* kind, size_t bytes) {
    if (bytes) text += fmt::format("  {:<22}{:>12}\n", kind, format_bytes(bytes));
  };
  row("weights", weights);
  row("gathered weights", gathered);
  row("adapter", optimizer_state.adapter);
  row("master weights", optimizer_state.master);
  row("optimizer state", optimizer_state.moments);
  row("gradients", optimizer_state.gradients);
  row("saved activations", step.saved);
  row("scratch", step.scratch);
  row("batch", step.batch);
  row(host_visible ? "CPU workspace" : "library workspace", workspace);
  row("samples' engine", samples);
  row("pipeline's messages", step.messages);
  text += fmt::format("  {:<22}{:>12}\n", "total", format_bytes(total()));
  if (balanced) {
    const size_t room = step.saved + step.scratch - balanced->saved - balanced->scratch;
    text += fmt::format(
        "  {:<22}{:>12} (used if all experts are selected equally often: {} of saved activations, {} of scratch)\n",
        "balanced routing", format_bytes(total() - room), format_bytes(balanced->saved),
        format_bytes(balanced->scratch));
  }
  if (mapped)
    text +=
        fmt::format("  {:<22}{:>12} (read in place from the model's files)\n", "mapped weights", format_bytes(mapped));
  if (staged && step.exchange)
    text += fmt::format("  {:<22}{:>12} (host memory)\n", "staged exchanges", format_bytes(step.exchange));
  if (offloaded) text += fmt::format("  {:<22}{:>12} (host memory)\n", "offloaded weights", format_bytes(offloaded));
  if (optimizer_state.offloaded)
    text += fmt::format("  {:<22}{:>12} (host memory)\n", "optimizer state", format_bytes(optimizer_state.offloaded));
  if (host_update) text += fmt::format("  {:<22}{:>12} (host memory)\n", "host update", format_bytes(host_update));
  if (staging) text += fmt::format("  {:<22}{:>12} (host memory)\n", "gathered weights", format_bytes(staging));
  if (copy)
    text += fmt::format("  {:<22}{:>12} (host memory, for checkpoints beside the steps)\n", "checkpoint's copy",
                        format_bytes(copy));
  return text;
}

train::OptimizerDtypes optimizer_types(const train::Recipe& recipe) {
  train::OptimizerRecipe optimizer = recipe.optimizer;
  optimizer.resolve();
  return {train::dtype_of(optimizer.state_dtype), train::dtype_of(optimizer.master),
          recipe.determinism == train::Determinism::bitwise, optimizer.name,
          recipe.parallel.offload == train::Offload::optimizer};
}

data::DatasetStatistics placeholder_statistics(int64_t sequence_length) {
  const double length = static_cast<double>(sequence_length);
  data::DatasetStatistics data;
  data.num_documents = data.num_entries = data.num_sequences = 1;
  data.num_tokens = data.num_loss_tokens = data.longest = sequence_length;
  data.packing_efficiency = 1;
  data.squared_lengths = length * length;
  return data;
}

void check_share(const train::Recipe& recipe, const spec::ModelSpec& model, const train::ShardSpec& share) {
  for (const spec::ModelShard& shard : share.shards) spec::check(model, shard);
  spec::check_context_parallel(model,
                               spec::ContextParallel{.ranks = share.cp,
                                                     .tp = share.tp(),
                                                     .sequence_length = recipe.data.sequence_length,
                                                     .bitwise = recipe.determinism == train::Determinism::bitwise,
                                                     .type = share.cp_comm_type});
  spec::check_sum_slices(model, share.sum_slices);
}

RunPlan size_run(const train::Recipe& recipe, const spec::ModelSpec& model, const data::DatasetStatistics& data,
                 int64_t longest_prompt, const WeightPlan& weights, size_t available, const runtime::Runtime& runtime,
                 const train::ShardSpec& share, std::optional<int64_t> recorded_micro) {
  RunPlan plan;
  plan.recipe = recipe;
  plan.model = model;
  plan.share = share;
  train::Recipe& r = plan.recipe;
  r.parallel.resolve();
  check_share(recipe, model, share);
  if (r.data.sequence_length > model.context) {
    throw_hint(ErrorKind::usage, fmt::format("set data.sequence_length to {} or less", model.context),
               "data.sequence_length {} is more than the model's context of {}", r.data.sequence_length, model.context);
  }
  plan.lora = resolve_adapter(r, data.num_loss_tokens);
  // Other programs' orders consist of full sequences.
  r.steps = steps_of(r, data.num_sequences, r.data.order == train::Order::ingot ? data.packing_efficiency : 1);
  r.epochs.reset();
  r.tokens.reset();
  const int threads = runtime.threads->threads();
  r.threads.value = threads;
  const int64_t warmup = r.schedule.warmup.in(*r.steps);
  if (warmup >= *r.steps) {
    throw_hint(ErrorKind::usage, "lower schedule.warmup, or give a share of the run: schedule.warmup=5%",
               "schedule.warmup is {} steps, but the run has only {}", warmup, *r.steps);
  }
  plan.schedule = {r.schedule.name, r.optimizer.lr, r.schedule.min_lr, warmup, *r.steps};
  if (r.checkpoint.minutes.is_auto()) {
    r.checkpoint.minutes.value = r.checkpoint.every == 0 ? train::default_checkpoint_minutes : 0;
  }
  r.optimizer.resolve();
  plan.optimizer_types = optimizer_types(r);

  train::StepSettings& s = plan.step;
  s.activation = train::dtype_of(r.precision);
  plan.memory.host_visible = runtime.device->host_visible();
  plan.decoded = weight_storage_of(r).decoded(s.activation);
  s.fp8 = r.precision == train::Precision::fp8;
  if (r.fp8_gradients == train::Fp8Gradients::e5m2) s.fp8_gradients = StorageType::fp8_e5m2;
  s.recompute = r.recompute;
  s.sequence_length = r.data.sequence_length;
  s.accumulation_unit = r.determinism_unit;
  if (plan.optimizer_types.fixed_point_sums) s.accumulation_units = r.batch.global / r.determinism_unit;
  s.schedule = r.parallel.schedule;
  s.seed = static_cast<uint64_t>(r.seed);
  s.optimizer = r.optimizer.settings();

  const std::vector<spec::LoraParam> adapters =
      plan.lora ? spec::lora_parameters(model, *plan.lora) : std::vector<spec::LoraParam>{};
  plan.trainable_parameters = plan.lora ? spec::num_parameters(adapters) : spec::num_parameters(model);
  const spec::AttentionSquares squares{static_cast<double>(data.num_sequences * r.data.sequence_length),
                                       data.squared_lengths};
  plan.flops_per_token = (plan.lora ? spec::lora_training_flops(model, adapters, squares, spec::AttentionCount::causal)
                                    : spec::training_flops(model, squares, spec::AttentionCount::causal)) /
                         squares.tokens;

  plan.memory.weights = weights.copied;
  plan.memory.mapped = weights.mapped;
  plan.memory.gathered = weights.gathered;
  plan.memory.staging = weights.staging;
  plan.weight_units = weights.units;
  plan.memory.offloaded = weights.offloaded;
  plan.memory.staged = weights.staged;
  plan.memory.workspace = runtime::workspace_bytes(runtime);
  plan.memory.optimizer_state =
      train::optimizer_state_bytes(model, plan.lora, s.activation, plan.optimizer_types, share);
  if (plan.optimizer_types.offload) plan.memory.host_update = train::HostUpdate::bytes();
  if (longest_prompt > 0) {
    plan.samples = sample_settings(plan, longest_prompt);
    const infer::EngineBytes bytes = infer::engine_bytes(model, *plan.samples, threads, runtime.device->host_visible());
    plan.memory.samples = bytes.kv + bytes.scratch + bytes.batch + bytes.adapters;
  }
  const auto fits = [&](int64_t micro) {
    set_micro_batch(plan, micro / s.accumulation_unit);
    return plan.memory.total() <= available;
  };
  const bool automatic = plan.micro_batch_auto = r.batch.micro.is_auto();
  // The last rank has the most units.
  const int64_t max_sequences =
      train::rank_sequences(r.batch.global, s.accumulation_unit, share.data_parallel() - 1, share.data_parallel())
          .count();
  s.sequences = max_sequences;
  int64_t micro = std::min(r.batch.micro.value_or(max_sequences), max_sequences);
  plan.micro_batch_reason = !automatic                  ? "set in the recipe"
                            : share.data_parallel() > 1 ? "a rank's share"
                                                        : "the whole global batch";
  const int64_t pipelined =
      std::max<int64_t>(1, max_sequences / (micro_batches_per_stage * share.stages() * s.accumulation_unit)) *
      s.accumulation_unit;
  if (automatic && share.stages() > 1 && micro > pipelined) {
    micro = pipelined;
    plan.micro_batch_reason =
        fmt::format("{} stages are kept busy by {} micro-batches each", share.stages(), micro_batches_per_stage);
  }
  const bool keeps = automatic && recorded_micro && *recorded_micro % s.accumulation_unit == 0 &&
                     r.determinism == train::Determinism::fast;
  if (keeps) {
    micro = std::min(*recorded_micro, max_sequences);
    plan.micro_batch_reason = "as before the run was continued";
  } else if (automatic && micro > s.accumulation_unit && micro * s.sequence_length / share.cp > max_useful_tokens) {
    const int64_t units = max_useful_tokens * share.cp / (s.sequence_length * s.accumulation_unit);
    micro = s.accumulation_unit * std::max<int64_t>(1, units);
    plan.micro_batch_reason = units > 0
                                  ? fmt::format("more than {} tokens per micro-batch are not faster", max_useful_tokens)
                                  : "determinism_unit is the minimum";
  }
  plan.fits = fits(micro);
  while (automatic && !plan.fits && micro > s.accumulation_unit) {
    micro -= s.accumulation_unit;
    plan.fits = fits(micro);
    plan.micro_batch_reason = fmt::format("the most that fit in {} of memory", format_bytes(available));
  }
  return plan;
}

CheckpointCopy checkpoint_copy(const RunPlan& plan, const Device& device, size_t available, int locals) {
  const bool own_memory = device.kind() == DeviceKind::cuda || device.kind() == DeviceKind::hip;
  const size_t left = available - std::min(available, plan.memory.total());
  const size_t host = available_memory() / static_cast<size_t>(locals);
  return {plan.memory.optimizer_state.state, own_memory ? host - std::min(host, plan.memory.on_host()) : left};
}

bool writes_checkpoints_between_steps(const train::Recipe& r) {
  return r.checkpoint.every > 0 || *r.checkpoint.minutes.value > 0;
}

void require_host_memory(const RunPlan& plan, size_t room) {
  const size_t needed = plan.memory.on_host();
  if (needed <= room) return;
  const bool optimizer = plan.optimizer_types.offload;
  throw_hint(ErrorKind::resource,
             optimizer ? "set optimizer.state_dtype: bf16, or divide the state among ranks with parallel.zero"
                       : "use more ranks with parallel.zero 3, or another type of weights",
             "a rank needs {} of host memory for {}, and {} are available", format_bytes(needed),
             optimizer ? "optimizer state" : "weights", format_bytes(room));
}

void set_background_checkpoints(RunPlan& plan, bool background) {
  plan.background_checkpoints = background;
  plan.memory.copy = background ? plan.memory.optimizer_state.state : 0;
}

void set_micro_batch(RunPlan& plan, int64_t micro) {
  const int64_t lowest = plan.lora ? spec::lowest_adapted_layer(plan.model, *plan.lora) : 0;
  plan.step.micro = micro;
  plan.recipe.batch.micro.value = micro * plan.step.accumulation_unit;
  const auto bytes_of = [&](const spec::ModelSpec& model) {
    return train::Step::bytes(model, plan.step, lowest, plan.lora ? plan.lora->rank : 0, plan.decoded,
                              static_cast<int>(*plan.recipe.threads.value), plan.memory.optimizer_state.update,
                              plan.memory.host_visible, plan.share);
  };
  plan.memory.step = bytes_of(plan.model);
  if (plan.share.ep() > 1) plan.memory.balanced = bytes_of(spec::with_balanced_routing(plan.model));
}

RunPlan plan_run(const train::Recipe& recipe, const spec::ModelSpec& model, const data::DatasetStatistics& data,
                 int64_t longest_prompt, const WeightPlan& weights, size_t available, const runtime::Runtime& runtime,
                 const train::ShardSpec& share, std::optional<int64_t> recorded_micro) {
  RunPlan plan = size_run(recipe, model, data, longest_prompt, weights, available, runtime, share, recorded_micro);
  if (!plan.fits) {
    throw_hint(ErrorKind::resource, memory_hint, "the run needs {} and {} are available:\n{}",
               format_bytes(plan.memory.total()), format_bytes(available), plan.memory.table());
  }
  return plan;
}

}  // namespace ingot::runs
