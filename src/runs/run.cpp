#include "runs/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/machine.h"
#include "base/path.h"
#include "base/signals.h"
#include "base/strings.h"
#include "checkpoint/adapter.h"
#include "checkpoint/export.h"
#include "checkpoint/text_assets.h"
#include "comm/failure.h"
#include "runs/affinity.h"
#include "runs/checkpoint_store.h"
#include "runs/console.h"
#include "runs/dry_run.h"
#include "runs/inputs.h"
#include "runs/model.h"
#include "runs/plan.h"
#include "runs/ranks.h"
#include "runs/samples.h"
#include "runs/summary.h"
#include "runs/tensorboard_log.h"
#include "runs/whole_tensors.h"
#include "runtime/device_rates.h"
#include "runtime/refusal_log.h"
#include "runtime/runtime.h"
#include "train/event_log.h"
#include "train/memory_probe.h"
#include "train/trainer.h"

namespace ingot::runs {

namespace {

train::DataCounts counts(const data::SequenceSet& set) {
  const data::DatasetStatistics& s = set.statistics();
  return {s.num_documents, s.num_sequences, s.num_bad_lines, s.first_bad_line};
}

// Enables background checkpoints if every rank's host has room for a copy of its state.
void plan_checkpoints(RunPlan& plan, const Device& device, size_t available, const Rank& rank, const Log& log) {
  if (!writes_checkpoints_between_steps(plan.recipe)) return;
  const CheckpointCopy copy = checkpoint_copy(plan, device, available, rank.locals);
  set_background_checkpoints(plan, rank.world.all_max<int32_t>(copy.fits() ? 0 : 1) == 0);
  if (plan.background_checkpoints) return;
  log.info(
      "checkpoints are written between steps (training pauses): a copy of the state needs {}, only {} of memory are "
      "available",
      format_bytes(copy.wanted), format_bytes(copy.room));
}

// batch.micro of the run that is continued. Absent for a new one, and if its recipe cannot be read. Collective.
std::optional<int64_t> recorded_micro(const train::Recipe& recipe, Resume resume, const comm::Group& world,
                                      const Log& log) {
  const std::filesystem::path file = run_folder(recipe) / "recipe.yaml";
  int64_t micro = 0;
  constexpr const char* unknown = "batch.micro: auto does not know the micro-batch of the run so far: {}";
  if (world.rank() == 0 && (resume == Resume::yes || resume == Resume::automatic) && path_exists(file)) {
    try {
      micro = train::read_recipe(file, {}).batch.micro.value.value_or(0);
    } catch (const Error& error) {
      log.warning(unknown, error.message());
    }
  } else if (world.rank() == 0 && resume == Resume::yes && recipe.determinism == train::Determinism::fast) {
    log.warning(unknown, file.string() + " is missing");  // the checkpoint is in checkpoint.store
  }
  micro = world.all_max(micro);
  return micro > 0 ? std::optional(micro) : std::nullopt;
}

// What this rank has of the adapter's master weights; `memory` owns those that are gathered from data-parallel ranks,
// which call it together.
std::vector<HeldTensor> held_masters(const train::OptimizerState& optimizer_state, train::Step& step,
                                     std::vector<Buffer>& memory) {
  std::vector<HeldTensor> held;
  for (size_t i = 0; i < optimizer_state.tensors().size(); ++i) {
    const train::TrainedParameter& t = optimizer_state.tensors()[i];
    const Tensor master = step.master(i, memory.emplace_back());
    const int64_t counted = t.counted_elements(optimizer_state.share());
    if (counted > 0 && optimizer_state.share().is_first_with(t.divided)) {
      const Tensor flat = master.reshape(Shape{master.elements()});
      held.push_back({t.number, flat.slice(0, counted), t.whole, t.slice, {0, counted}});
    }
  }
  return held;
}

// The adapter's master weights, by layer; `memory` owns those that other ranks have. On rank 0.
std::vector<checkpoint::AdapterModule> adapter_modules(const RunPlan& plan, WholeTensors& tensors,
                                                       std::vector<Buffer>& memory) {
  std::vector<checkpoint::AdapterModule> modules;
  size_t number = 0;  // of the trainable tensors of the whole model: A and B of each layer
  const auto next = [&] { return tensors.fetch(number++, memory.emplace_back()); };
  for (const spec::LoraParam& p : spec::lora_parameters(plan.model, *plan.lora)) {
    const Tensor a = next(), b = next();
    modules.push_back({.param = p, .factor = static_cast<float>(plan.lora->factor()), .a = a, .b = b});
  }
  return modules;
}

// The store's address if it has checkpoints of the run; else empty.
std::string address_of(const std::optional<checkpoint::RemoteCheckpoints>& remote) {
  return remote && remote->any() ? remote->address() : "";
}

// Makes the Step. With `batch.micro: auto` it first runs a memory probe; if memory runs out on any rank, the plan gets
// a smaller micro-batch.
std::unique_ptr<train::Step> make_step(RunPlan& plan, runtime::Runtime& runtime, const RunModel& made,
                                       const RunData& data, const Log& log, const comm::Grid& grid) {
  if (!plan.micro_batch_auto) {
    return std::make_unique<train::Step>(*runtime.device, runtime.registry, *runtime.threads, made.trained(),
                                         *made.optimizer_state, plan.step, plan.decoded, grid);
  }
  std::vector<int64_t> samples = data.order->step_samples(0);
  samples.resize(std::min(samples.size(), static_cast<size_t>(*plan.recipe.batch.micro.value)));
  std::vector<data::PackedSequence> sequences;
  for (const int64_t sample : samples) sequences.push_back(data.train->get(sample));
  train::ProbedStep tried =
      train::probe_memory(*runtime.device, runtime.registry, *runtime.threads, made.trained(), *made.optimizer_state,
                          plan.step, plan.decoded, sequences, samples, grid);
  if (!tried.shortage.empty()) {
    plan.micro_batch_reason = fmt::format("with {} there was not enough memory for a step: {}",
                                          *plan.recipe.batch.micro.value, tried.shortage);
    set_micro_batch(plan, tried.step->settings().micro);
    if (grid.world.rank() == 0)
      log.warning("batch.micro: auto is {}: {}", *plan.recipe.batch.micro.value, plan.micro_batch_reason);
  }
  return std::move(tried.step);
}

// Memory available to a rank: the minimum over all ranks, where ranks on one machine divide its host memory.
size_t memory_of(const Device& device, const Rank& rank) {
  const bool own_memory = device.kind() == DeviceKind::cuda || device.kind() == DeviceKind::hip;
  const auto available = static_cast<int64_t>(device.memory_available() / (own_memory ? 1 : rank.locals));
  return static_cast<size_t>(-rank.world.all_max(-available));
}

// Ranks that update the same parameters by themselves must round alike: data-parallel ones without ZeRO,
// tensor-parallel ones, and in a pipeline the stages that both have a tied embedding.
void require_like_devices(const Device& device, const RunPlan& plan, const comm::Grid& grid) {
  const std::string own = fmt::format("rank {} has {} {}", grid.world.rank(), name(device.kind()), device.arch());
  const auto require = [&](const comm::Group& group, const char* hint, const char* why) {
    const std::vector<std::string> all = group.gather(own);
    const auto kind = [](const std::string& text) { return text.substr(text.find(" has ")); };
    const auto other = std::ranges::find_if(all, [&](const std::string& each) { return kind(each) != kind(all[0]); });
    if (other == all.end()) return;
    throw_hint(ErrorKind::usage, hint, "{} and {}: {}", all[0], *other, why);
  };
  if (plan.recipe.parallel.zero == 0) {
    require(grid.dp, "use identical devices, or set parallel.zero to 1, 2 or 3",
            "with parallel.zero 0 their weights would drift apart");
  }
  require(grid.replicas, "use identical devices for them, or set parallel.shard to auto",
          "with parallel.shard the weights of replicas would drift apart");
  require(grid.tp, "use identical devices for tensor-parallel ranks",
          "the parameters that both have would drift apart");
  const bool both_in_rank0 = plan.recipe.parallel.schedule == spec::PipelineScheduleName::zb_v;
  if (plan.model.tied_head && !plan.lora && !both_in_rank0) {
    require(grid.ends, "use identical devices for the first and the last stage, or parallel.schedule: zb_v",
            "the tied embedding of these stages would drift apart");
  }
}

DeviceRates scaled(const DeviceRates& rates, double factor) {
  return {rates.peak * factor, rates.gemm * factor, rates.date};
}

// The rates of this rank's CPU.
DeviceRates measured_cpu_rates(const runtime::Runtime& runtime, int locals, train::Step& step, runtime::Measure when) {
  return runtime::cpu_rates(runtime::rate_cache(runtime::rates_key(runtime, locals)), step.context(),
                            step.settings().activation, when)
      .rates;
}

// The rates of the first rank's CPU; only this rank reports utilisation. If they are not cached, the other ranks
// measure at the same time, because their load affects the first rank's rates. Collective.
DeviceRates run_cpu_rates(const runtime::Runtime& runtime, const Rank& rank, train::Step& step) {
  const bool on_cpu = runtime.device->kind() == DeviceKind::cpu, first = rank.world.rank() == 0;
  const runtime::RateCache cache = runtime::rate_cache(runtime::rates_key(runtime, rank.locals));
  const bool missing = first && on_cpu && !cache.find(name(step.settings().activation), 2);
  const bool measure = rank.world.all_max<int32_t>(missing ? 1 : 0) != 0;
  if (!on_cpu || (!first && !measure)) return {};
  if (first) return measured_cpu_rates(runtime, rank.locals, step, runtime::Measure::if_missing);
  return runtime::cpu_rates(runtime::RateCache({}, {}), step.context(), step.settings().activation).rates;
}

// All settings except the run's folder and identity.
train::TrainerSettings trainer_settings(const RunPlan& plan, runtime::Runtime& runtime, train::Step& step,
                                        const Rank& rank, const DeviceRates& rates) {
  const train::Recipe& r = plan.recipe;
  const bool on_cpu = runtime.device->kind() == DeviceKind::cpu;
  train::TrainerSettings settings;
  settings.name = r.name;
  settings.steps = *r.steps;
  settings.schedule = plan.schedule;
  settings.eval_every = r.eval.every;
  settings.checkpoint_every = r.checkpoint.every;
  settings.checkpoint_minutes = *r.checkpoint.minutes.value;
  settings.checkpoints_kept = r.checkpoint.keep;
  settings.traced_steps = r.log.trace;
  settings.background_checkpoints = plan.background_checkpoints;
  const double ranks = rank.world.size();  // total of all devices of a kind, or of all shares of the threads
  settings.rates = scaled(rates, ranks);
  // With several ranks one rank would measure alone while the others wait, which gives higher rates than under load.
  if (on_cpu && rank.world.size() == 1) {
    settings.measure_rates = [&step, &runtime, locals = rank.locals] {
      return measured_cpu_rates(runtime, locals, step, runtime::Measure::raise);
    };
  }
  // The energy counter of a CPU is shared by the ranks of a machine and counts once.
  if ((!on_cpu || rank.local == 0) && runtime.device->joules()) {
    settings.joules = [&runtime] { return runtime.device->joules(); };
  }
  return settings;
}

runtime::CollectivesUse collectives_use(const train::Recipe& recipe, const spec::ModelSpec& model,
                                        const train::ShardSpec& share) {
  const spec::PipelineScheduleName schedule = recipe.parallel.schedule;
  const bool ends_differ = schedule != spec::PipelineScheduleName::zb_v;
  return {.gathers_weights = share.gathers_weights(),
          .passes_keys = share.cp_comm_type == spec::CpCommType::p2p,
          .sends_messages = share.stages() > 1,
          .is_ring = spec::is_ring(schedule),
          .sums_ends = model.tied_head && !recipe.adapter && ends_differ};
}

// After the training has failed: what it has recorded so far, unless another process has taken the folder.
void report_failure(train::Trainer& trainer, const Error& error, const std::optional<RunFolder>& folder,
                    const Log& log) {
  try {
    if (folder) folder->require_lock();
    trainer.report_failure(error);
  } catch (const std::exception& second) {
    if (second.what() != error.message()) log.error("{}", text_of(second));
  }
}

// One rank's run.
class Runner {
 public:
  Runner(const RunRequest& request) : request_(request) {}
  int run_rank(const Rank& launched);

 private:
  int plan_and_train(const train::Recipe& recipe, runtime::Runtime& runtime, const Rank& rank,
                     const runtime::DeviceCollectives& collectives, const RunInputs& inputs, Log& log);
  int train_run(RunPlan plan, std::vector<std::vector<int32_t>> prompts, runtime::Runtime& runtime, const Rank& rank,
                const runtime::DeviceCollectives& collectives, const RunInputs& inputs, Log& log);

  const RunRequest& request_;
};

int Runner::run_rank(const Rank& launched) {
  train::Recipe recipe = request_.recipe;
  train::require_supported_ranks(recipe, recipe.name);  // a launcher has set parallel.dp
  const comm::Group& world = launched.world;
  const bool first = world.rank() == 0;
  Log log(first ? LogLevel::info : LogLevel::error);
  // Checked before anything is read, not at the first checkpoint.
  on_rank0(world, [&] {
    const std::optional<checkpoint::RemoteCheckpoints> remote = remote_checkpoints(recipe);
    if (remote) remote->require_writable();
    RunFolder::check(run_folder(recipe), request_.resume, address_of(remote));
  });
  runtime::Runtime runtime = open_rank_runtime(recipe.device, recipe.threads.value, recipe.affinity, launched);
  if (recipe.affinity == "auto")
    log.info("affinity: auto: this rank has {}", describe_place(runtime.cpus, runtime.pci_address));
  const RunInputs inputs = read_run_inputs(recipe, *runtime.threads, log);
  const train::ShardSpec share = share_of(recipe.parallel, world.rank());
  const runtime::CollectivesChoice collectives = choose_collectives(recipe.parallel, *runtime.device, launched.grid);
  if (first && world.size() > 1 && !runtime.device->host_visible()) {
    const bool stages_alone = recipe.parallel.replicas() * recipe.parallel.tp == 1;
    log.info("ranks exchange {} {}", stages_alone ? "activations" : "gradients and weights", collectives.text);
  }
  // Before the available memory is measured: a library takes some.
  const runtime::DeviceCollectives device_collectives(collectives, *runtime.device, launched.grid,
                                                      collectives_use(recipe, inputs.model, share),
                                                      static_cast<double>(recipe.parallel.timeout_s));
  Rank rank = launched;
  rank.grid = device_collectives.grid();
  try {
    return plan_and_train(recipe, runtime, rank, device_collectives, inputs, log);
  } catch (...) {
    world.fail(comm::error_of_exception());  // before communicators end, which may wait for the other ranks
    device_collectives.end();
    throw;
  }
}

int Runner::plan_and_train(const train::Recipe& recipe, runtime::Runtime& runtime, const Rank& rank,
                           const runtime::DeviceCollectives& collectives, const RunInputs& inputs, Log& log) {
  const comm::Group& world = rank.world;
  const bool first = world.rank() == 0;
  const train::ShardSpec share = share_of(recipe.parallel, world.rank());
  const WeightPlan weights = plan_weights(recipe, runtime, inputs.source, inputs.model, share,
                                          {.staged = !collectives.has_library() && !runtime.device->host_visible()});
  const size_t available = memory_of(*runtime.device, rank);
  std::vector<std::vector<int32_t>> prompts;  // only on the first rank
  if (first) prompts = encode_prompts(recipe, inputs.text, inputs.data);
  size_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) longest = std::max(longest, prompt.size());
  const std::optional<int64_t> recorded =
      recipe.batch.micro.is_auto() ? recorded_micro(recipe, request_.resume, world, log) : std::nullopt;
  RunPlan plan = plan_run(recipe, inputs.model, inputs.data.train->statistics(), static_cast<int64_t>(longest), weights,
                          available, runtime, share, recorded);
  const int64_t micro = -world.all_max(-plan.step.micro);  // all ranks use the same micro-batch
  if (micro != plan.step.micro) {
    set_micro_batch(plan, micro);
    plan.micro_batch_reason = "the most that fits in the memory of every rank";
  }
  const bool depends_on_micro = recipe.determinism == train::Determinism::fast &&
                                (!runtime.device->host_visible() || (recipe.parallel.zero >= 2 && world.size() > 1));
  if (recorded && *plan.recipe.batch.micro.value != *recorded && depends_on_micro) {
    log.warning("batch.micro: auto is {}, and was {}: from here on losses and gradients may differ by rounding",
                *plan.recipe.batch.micro.value, *recorded);
  }
  // The recipe states the total over all ranks.
  const std::vector<int64_t> threads = world.gather_one<int64_t>(runtime.threads->threads());
  plan.recipe.threads.value = recipe.threads.value.value_or(std::reduce(threads.begin(), threads.end()));
  require_host_memory(plan, available_memory() / static_cast<size_t>(rank.locals));
  plan_checkpoints(plan, *runtime.device, available, rank, log);
  return train_run(std::move(plan), std::move(prompts), runtime, rank, collectives, inputs, log);
}

int Runner::train_run(RunPlan plan, std::vector<std::vector<int32_t>> prompts, runtime::Runtime& runtime,
                      const Rank& rank, const runtime::DeviceCollectives& collectives, const RunInputs& inputs,
                      Log& log) {
  const train::Recipe& r = plan.recipe;
  const RunData& data = inputs.data;
  const comm::Group& world = rank.world;
  const bool first = world.rank() == 0;
  const std::filesystem::path run_dir = run_folder(r);
  const std::optional<checkpoint::RemoteCheckpoints> remote = first ? remote_checkpoints(r) : std::nullopt;
  std::optional<RunFolder> folder;  // only on rank 0
  on_rank0(world, [&] {
    folder.emplace(run_dir, request_.resume, address_of(remote));
    log.add_file(run_dir / "log.txt");
    if (!folder->taken_over().empty()) log.warning("took over the run's folder from {}", folder->taken_over());
    if (remote) remove_leftovers(*remote, log);
  });
  runtime::log_refusals(*runtime.device, log);
  require_like_devices(*runtime.device, plan, rank.grid);

  const DeviceRates gpu_rates = runtime.device->kind() == DeviceKind::cpu
                                    ? DeviceRates{}
                                    : runtime::gpu_training_rates(runtime, plan.step.activation);
  RunModel made = make_run_model(plan, runtime, inputs.source, rank.grid);
  const WeightSet& weights = made.weights();
  train::OptimizerState& optimizer_state = *made.optimizer_state;
  std::unique_ptr<train::Step> step_made = make_step(plan, runtime, made, data, log, rank.grid);
  train::Step& step = *step_made;
  made.begin(step);

  const DeviceRates cpu_rates = run_cpu_rates(runtime, rank, step);
  train::TrainerSettings settings =
      trainer_settings(plan, runtime, step, rank, cpu_rates.date.empty() ? gpu_rates : cpu_rates);
  settings.run_dir = run_dir;
  settings.remote = remote ? &*remote : nullptr;
  settings.files = made.loaded->files.get();
  settings.identity = run_identity(plan, data.train->content_hash(), made.base);

  Observers observers;
  Console console(log, request_.quiet);
  std::optional<train::Trainer> trainer;
  trainer.emplace(step, plan.model, weights, optimizer_state, plan.lora, *data.train, *data.order, data.eval.get(),
                  settings, observers);
  // With `yes` RunFolder has checked that there is a checkpoint.
  const bool resumes = request_.resume == Resume::yes || request_.resume == Resume::automatic;
  const int64_t done = resumes ? trainer->resume() : 0;
  std::optional<train::EventLog> events;
  std::optional<TensorboardLog> tensorboard;
  if (first) {
    folder->write_recipe(train::write_recipe(r));
    // Without a checkpoint even the evaluation before the first step is repeated.
    observers.add(events.emplace(run_dir / "events.jsonl", done > 0 ? done : -1));
    const std::optional<int64_t> first_repeated =
        request_.resume == Resume::no ? std::nullopt : std::optional(done > 0 ? done + 1 : 0);
    if (r.log.tensorboard) observers.add(tensorboard.emplace(run_dir / "tensorboard", first_repeated));
    observers.add(console);
  }
  observers.on_start({r.name, done + 1, *r.steps, spec::num_parameters(plan.model), plan.trainable_parameters,
                      runtime.device->name() + " " + runtime.device->arch(), world.size(), train::name(r.precision),
                      settings.rates, done > 0, *r.batch.micro.value, plan.micro_batch_reason, counts(*data.train),
                      data.eval ? counts(*data.eval) : train::DataCounts{}});

  std::optional<Sampler> sampler;
  sampler.emplace(runtime, *made.parts.front(), inputs.text, plan, std::move(prompts), optimizer_state.adapter());
  std::optional<StopSignal> stop;  // one per process
  if (rank.leads_process) stop.emplace(request_.second_signal);
  const auto stops = [&] {
    if (folder) folder->require_lock();
    return stop && stop->requested();
  };
  train::Trainer::End end = train::Trainer::End::done;
  try {
    end = trainer->run(stops, [&](int64_t at) { sampler->run(at, observers); });
  } catch (...) {
    const Error error = comm::error_of_exception();
    world.fail(error);  // notifies the other ranks before the destructors here wait
    collectives.end();
    report_failure(*trainer, error, folder, log);
    throw;
  }
  const std::string upload_error = trainer->upload_error();
  if (end == train::Trainer::End::stopped) {
    require_stored(upload_error);
    log.info("stopped after step {}; continue with --resume", console.summary().end.step);
    return 130;
  }
  std::vector<Buffer> gathered;
  const bool shares_weights = made.sharded && !plan.lora;
  std::vector<HeldTensor> held = plan.lora        ? held_masters(optimizer_state, step, gathered)
                                 : shares_weights ? held_tensors(plan.model, plan.share.shards, *made.sharded)
                                                  : held_tensors(plan.model, plan.share.shards, weights);
  if (rank.grid.dp.rank() >= plan.share.ep() && !shares_weights) return 0;
  if (plan.share.replica > 0) held.clear();  // the first replica has them too
  // What trained is freed first: it took more memory than a whole tensor does.
  sampler.reset();
  trainer.reset();
  step_made.reset();
  if (!plan.lora) made.optimizer_state.reset();
  WholeTensors tensors(*runtime.device, std::move(held), shares_weights ? rank.grid.world : rank.grid.model);
  if (!first) {
    tensors.serve();
    return 0;
  }
  const std::filesystem::path result = run_dir / (plan.lora ? "adapter" : "model");
  if (plan.lora) {
    checkpoint::write_adapter(result, plan.model, *plan.lora, r.model, adapter_modules(plan, tensors, gathered),
                              *runtime.device);
  } else {
    remove_tree(result);
    Buffer memory;
    const auto fetch = [&](size_t index) {
      const Tensor tensor = tensors.fetch(index, memory);
      return tensor.shape.rank() > 1 ? Parameter{weight_of(tensor), {}} : Parameter{{}, tensor};
    };
    checkpoint::write_hf(result,
                         {.spec = plan.model,
                          .weights = weights,
                          .device = *runtime.device,
                          .name = r.name,
                          .text = inputs.text_source,
                          .pool = runtime.threads.get(),
                          .fetch = fetch},
                         plan.step.activation);
  }
  tensors.end();
  request_.print(end_report(plan, data, console.summary(), result));
  require_stored(upload_error);
  return 0;
}

}  // namespace

std::filesystem::path run_folder(const train::Recipe& recipe) {
  return std::filesystem::path(recipe.run_dir) / recipe.name;
}

int run(RunRequest request) {
  if (request.dry_run) {
    dry_run(request.recipe, request.rank, request.machine, request.print);
    return 0;
  }
  // The ranks of this process change parallel.dp of one recipe.
  return run_ranks(request.recipe.parallel, [&](const Rank& rank) { return Runner(request).run_rank(rank); });
}

}  // namespace ingot::runs
