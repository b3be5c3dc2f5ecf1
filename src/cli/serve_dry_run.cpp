#include "cli/serve_dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "checkpoint/load.h"
#include "cli/model_ranks.h"
#include "infer/serve_memory.h"
#include "runs/machine_file.h"
#include "runs/ranks.h"
#include "tensor/arena.h"

namespace ingot::cli {

namespace {

struct RankPlan {
  size_t weights = 0, mapped = 0;
  infer::EngineBytes engine;
  size_t total() const {
    return weights + engine.kv + engine.scratch + engine.batch + engine.adapters + engine.library_workspace;
  }
};

class ServeDryRun {
 public:
  ServeDryRun(const runtime::ModelOptions& options, const infer::EngineSettings& settings,
              std::optional<size_t> cache_bytes, const std::optional<std::string>& machine)
      : options_(options),
        settings_(settings),
        cache_bytes_(cache_bytes),
        source_(checkpoint::open_model(options.model)),
        model_(checkpoint::read_model_spec(source_)) {
    check_ranks(options);
    if (machine) machine_ = runs::read_machine_file(*machine);
    const int64_t ranks = options.tp * options.pp;
    const auto all = static_cast<int>(ranks);
    runtime_ = machine_ ? runtime::open_runtime(machine_->stand_in(), 1)
                        : runs::open_runtime_at(options.device, options.threads, {},
                                                {.ranks = all, .locals = all, .cpu_sharers = ranks});
    on_host_ = runtime_.device->host_visible();
    available_ =
        machine_ ? machine_->memory() : runtime_.device->memory_available() / static_cast<size_t>(on_host_ ? ranks : 1);
    settings_.activation = runtime::activation_of(options.dtype);
    settings_.decoded = storage().decoded(settings_.activation);
    settings_.int8_activations = runtime::asks_for_int8(options.compute, *runtime_.device);
  }

  // Returns whether it fits.
  bool run(const std::function<void(std::string_view)>& print) {
    settle_cache();
    std::vector<RankPlan> plans;
    for (int64_t rank = 0; rank < options_.tp * options_.pp; ++rank) plans.push_back(plan_of(rank));
    const auto most = std::ranges::max_element(plans, {}, &RankPlan::total);
    const std::string where = machine_ ? machine_->name : runtime_.device->name();
    std::string text;
    for (size_t first = 0, end = 0; first < plans.size(); first = end) {  // of ranks in a row with equal plans
      text = text_of(plans[first]);
      for (end = first + 1; end < plans.size() && text_of(plans[end]) == text;) ++end;
      const std::string ranks =
          end == first + 1 ? fmt::format("rank {}", first) : fmt::format("each of ranks {} to {}", first, end - 1);
      print(fmt::format("{} on {}: {}\n", ranks, where, text));
    }
    const int64_t tokens = settings_.pages * settings_.page_tokens;
    print(fmt::format("the KV cache holds {} tokens, for at most {} sequences of up to {}\n", tokens,
                      settings_.sequences, settings_.context));
    if (!checkpoint::has_weights(source_))
      print(fmt::format("{} has no weights: planned for its shape\n", source_.path.string()));
    const bool fits = most->total() <= available_;
    if (!fits) {
      print(fmt::format("does not fit: rank {} needs {} and has {}\n", most - plans.begin(),
                        format_bytes(most->total()), format_bytes(available_)));
    }
    return fits;
  }

 private:
  std::string text_of(const RankPlan& p) const {
    std::string text = fmt::format("weights {}{}, KV cache {}, activations {}", format_bytes(p.weights),
                                   p.mapped > 0 ? " (read in place)" : "", format_bytes(p.engine.kv),
                                   format_bytes(p.engine.scratch + p.engine.batch));
    if (p.engine.adapters > 0) text += fmt::format(", adapters {}", format_bytes(p.engine.adapters));
    if (p.engine.library_workspace > 0)
      text += fmt::format(", library workspace {}", format_bytes(p.engine.library_workspace));
    return text + fmt::format(": {} of {}", format_bytes(p.total()), format_bytes(available_));
  }

  checkpoint::WeightStorage storage() const {
    const auto storage = checkpoint::weight_storage(options_.weights, runtime::activation_of(options_.dtype));
    if (!storage) throw_error(ErrorKind::usage, "--weights '{}' is not known", options_.weights);
    return *storage;
  }

  // comm/grid.h.
  spec::ModelShard shard_of(int64_t rank) const {
    return {.tp = options_.tp, .tp_rank = rank % options_.tp, .pp = options_.pp, .stage = rank / options_.tp};
  }

  RankPlan weights_of(const spec::ModelShard& shard) const {
    RankPlan plan;
    const checkpoint::LoadOptions load{.device = *runtime_.device, .storage = storage(), .shards = {shard}};
    if (checkpoint::has_weights(source_)) {
      const checkpoint::WeightSizes sizes = checkpoint::weight_sizes(source_, load);
      return {.weights = sizes.copied + sizes.mapped, .mapped = sizes.mapped};
    }
    for (const ParameterForm& form : checkpoint::parameter_forms(model_, load))
      plan.weights += Arena::footprint(form.bytes());
    return plan;
  }

  // As the server does: from the least that weights leave to any rank. A cache that would not fit has one context.
  void settle_cache() {
    size_t left = available_;
    for (int64_t rank = 0; rank < options_.tp * options_.pp; ++rank) {
      const RankPlan plan = weights_of(shard_of(rank));
      left = std::min(left, available_ - std::min(available_, plan.weights - plan.mapped));
    }
    settings_.shard = shard_of(0);
    const RankPlan first = weights_of(settings_.shard);
    try {
      const size_t limit = cache_bytes_
                               ? *cache_bytes_
                               : infer::default_cache_limit(model_, settings_, threads(), on_host_, left, first.mapped);
      settings_ = infer::plan_cache(model_, settings_, limit).settings;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::resource) throw;
      if (settings_.context == 0) settings_.context = model_.context;
      settings_.pages = (settings_.context + settings_.page_tokens - 1) / settings_.page_tokens;
    }
  }

  RankPlan plan_of(int64_t rank) const {
    infer::EngineSettings settings = settings_;
    settings.shard = shard_of(rank);
    RankPlan plan = weights_of(settings.shard);
    plan.engine = infer::engine_bytes(model_, settings, threads(), on_host_);
    return plan;
  }

  int threads() const { return runtime_.threads->threads(); }

  runtime::ModelOptions options_;
  infer::EngineSettings settings_;
  std::optional<size_t> cache_bytes_;
  checkpoint::ModelSource source_;
  spec::ModelSpec model_;
  std::optional<runs::MachineFile> machine_;
  runtime::Runtime runtime_;
  bool on_host_ = false;
  size_t available_ = 0;
};

}  // namespace

int serve_dry_run(const runtime::ModelOptions& options, const infer::EngineSettings& settings,
                  std::optional<size_t> cache_bytes, const std::optional<std::string>& machine,
                  const std::function<void(std::string_view)>& print) {
  return ServeDryRun(options, settings, cache_bytes, machine).run(print) ? 0 : exit_code(ErrorKind::resource);
}

}  // namespace ingot::cli
