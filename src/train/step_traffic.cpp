#include "train/step_traffic.h"

#include <algorithm>
#include <map>
#include <vector>

#include "nn/weight_gatherer.h"
#include "spec/sizes.h"
#include "train/sharded_weights.h"
#include "train/step_schedule.h"

namespace ingot::train {

namespace {

using spec::Axis;
using spec::Collective;
using spec::PipelineAction;

// The adapted linear layers of a block, or the head, of which tensor-parallel ranks have parts.
struct CutAdapters {
  int64_t attention_out = 0, down = 0;               // with their inputs cut
  int64_t projections = 0, ups = 0;                  // with their outputs cut: q, k and v; gate and up
  int64_t expert_gate = 0, expert_up = 0, head = 0;  // 0 or 1
};

class Counter {
 public:
  Counter(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora, const OptimizerDtypes& types,
          const StepSettings& settings, const ShardSpec& share, std::span<const std::vector<size_t>> units,
          int64_t sequences, bool host_visible)
      : model_(model),
        lora_(lora),
        types_(types),
        settings_(settings),
        share_(share),
        units_(units),
        host_visible_(host_visible) {
    const int data_parallel = share.data_parallel();
    const auto own = [&](int rank) {
      return rank_sequences(sequences, settings.accumulation_unit, rank, data_parallel).count();
    };
    const int64_t max_sequences = own(data_parallel - 1);
    const int64_t mine = share.ep() > 1 ? max_sequences : own(data_rank() / share.cp);
    const int count = micro_batches_of(has_equal_micro_batches(share) ? max_sequences : mine, settings, share);
    const int64_t each = settings.micro * settings.accumulation_unit;
    for (int64_t i = 0; i < count; ++i)
      tokens_.push_back(std::clamp(mine - i * each, int64_t{0}, each) * settings.sequence_length / share.cp);
    if (lora) {
      lowest_ = spec::lowest_adapted_layer(model, *lora);
      const std::vector<spec::ParamSpec> table = spec::parameters(model);
      for (const spec::LoraParam& p : spec::lora_parameters(model, *lora)) add_adapter(table[p.base]);
    }
    schedule_ = step_schedule(model, settings.schedule, share, lowest_, count, true);
  }

  spec::Traffic count() {
    count_messages();
    for (size_t chunk = 0; chunk < share_.shards.size(); ++chunk) {
      for (const int64_t tokens : tokens_) {
        if (tokens > 0) count_layers(share_.shards[chunk], tokens);
      }
    }
    count_gradients();
    count_weights();
    return traffic_;
  }

 private:
  // Among all ranks with the same part of the model.
  int data_rank() const { return share_.replica * share_.ranks + share_.rank; }
  int64_t width() const { return static_cast<int64_t>(size_of(settings_.activation)); }
  bool sliced() const { return share_.sum_slices > 1; }
  bool defers() const { return share_.stages() > 1 && spec::separates_weight_gradients(settings_.schedule); }
  void add(Axis axis, Collective collective, int64_t bytes, int64_t messages = 1) {
    traffic_.add({axis, collective}, bytes, messages);
  }

  void add_adapter(const spec::ParamSpec& base) {
    CutAdapters& layer = adapters_[base.layer];
    switch (base.role) {
      case spec::Role::attention_out: ++layer.attention_out; break;
      case spec::Role::down: ++layer.down; break;
      case spec::Role::expert_down: layer.down = 1; break;
      case spec::Role::qkv:
      case spec::Role::q:
      case spec::Role::k:
      case spec::Role::v: ++layer.projections; break;
      case spec::Role::gate:
      case spec::Role::up: ++layer.ups; break;
      case spec::Role::expert_gate: layer.expert_gate = 1; break;
      case spec::Role::expert_up: layer.expert_up = 1; break;
      case spec::Role::head: layer.head = 1; break;
      default: break;
    }
  }
  CutAdapters adapters_of(int64_t layer) const {
    const auto found = adapters_.find(layer);
    return found == adapters_.end() ? CutAdapters{} : found->second;
  }

  // Between stages.
  void count_messages() {
    if (share_.stages() == 1) return;
    for (const spec::PipelineStep& step : schedule_.ranks[static_cast<size_t>(share_.stage())]) {
      if (step.action != PipelineAction::send_activation && step.action != PipelineAction::send_gradient) continue;
      const int64_t rows = tokens_[static_cast<size_t>(step.micro_batch)] / share_.shards.front().row_ranks();
      add(Axis::pp, Collective::send, rows * model_.hidden * width());
    }
  }

  // A sum of matrices [rows, features] over tensor-parallel ranks.
  void sum(int64_t rows, int64_t features, int64_t messages = 1) {
    if (share_.tp() == 1) return;
    add(Axis::tp, Collective::all_reduce, rows * features * (sliced() ? 4 : width()), messages);
  }
  // The same, of which a rank needs its own rows only with sequence parallelism.
  void sum_residual(int64_t rows) {
    if (!share_.sequence_parallel() || sliced()) return sum(rows, model_.hidden);
    add(Axis::tp, Collective::reduce_scatter, rows * model_.hidden * width());
  }
  // With sequence parallelism: of so many matrices as wide as the residual.
  void gather_rows(int64_t rows, int64_t matrices) {
    if (share_.sequence_parallel()) add(Axis::tp, Collective::all_gather, rows * model_.hidden * width(), matrices);
  }
  // Of low-rank products, which are summed where sums are taken in slices.
  void sum_low_rank(int64_t rows, int64_t messages) {
    if (sliced() && lora_) sum(rows, lora_->rank, messages);
  }

  // A micro-batch in one of the parts.
  void count_layers(const spec::ModelShard& shard, int64_t tokens) {
    const spec::ModelSpec part = spec::sizes_of(model_, shard);
    const bool trains = shard.stage >= schedule_.shape.first_trainable;
    const spec::BackwardEnd end = spec::backward_end(model_, shard, lowest_);
    const bool below = end.input_gradient || (!lora_ && shard.first());
    const int64_t lowest = below ? 0 : end.lowest_layer, first = spec::blocks_of(model_, shard).begin;
    if (shard.first() && share_.tp() > 1) {
      add(Axis::tp, share_.sequence_parallel() ? Collective::reduce_scatter : Collective::all_reduce,
          tokens * model_.hidden * width());
      if (trains && !lora_) gather_rows(tokens, 1);  // the gradient of the embedding's output
    }
    for (int64_t i = 0; i < part.num_layers(); ++i) {
      const spec::LayerSpec& layer = part.layers[static_cast<size_t>(i)];
      const CutAdapters cut = adapters_of(first + i);
      count_attention_forward(layer, tokens, true, cut);
      count_mlp_forward(layer, tokens, true, cut, trains);
      if (!trains || i < lowest) continue;
      if (settings_.recompute == spec::Recompute::selective && spec::experts_of(layer.mlp) != nullptr &&
          share_.ep() == 1)
        gather_rows(tokens, 1);
      if (settings_.recompute == spec::Recompute::full) {
        count_attention_forward(layer, tokens, layer.post_norms || !layer.parallel_residual, cut);
        count_mlp_forward(layer, tokens, layer.post_norms, cut, trains);
      }
      count_mlp_backward(layer, tokens, cut);
      count_attention_backward(layer, tokens, !lora_ || i > lowest || below, cut);
    }
    if (shard.last() && trains) count_loss(tokens);
  }

  // `output`: whether its result is needed, and not only what backward reads.
  void count_attention_forward(const spec::LayerSpec& layer, int64_t tokens, bool output, const CutAdapters& cut) {
    gather_rows(tokens, 1);
    if (share_.cp > 1) exchange(layer.attention, tokens, 2, 2, false);
    if (!output) return;
    sum_residual(tokens);
    sum_low_rank(tokens, cut.attention_out);
  }
  void count_mlp_forward(const spec::LayerSpec& layer, int64_t tokens, bool output, const CutAdapters& cut,
                         bool trains) {
    const spec::Experts* experts = spec::experts_of(layer.mlp);
    gather_rows(tokens, 1);
    if (experts != nullptr) exchange_rows(*experts, tokens, trains);
    if (experts != nullptr && sliced()) {
      const int64_t rows = rows_of_one(*experts, tokens);
      sum(rows, model_.hidden, experts->own());
      sum_low_rank(rows, cut.down * experts->own());
    } else if (output) {
      sum_residual(tokens);
      sum_low_rank(tokens, cut.down);
    }
  }

  // Of an expert, where tokens are distributed evenly.
  int64_t rows_of_one(const spec::Experts& experts, int64_t tokens) const {
    return tokens * share_.ep() * experts.per_token / experts.count;
  }
  // Of expert-parallel ranks, in one direction: which tokens' rows these are, the rows, and what they become.
  void exchange_rows(const spec::Experts& experts, int64_t tokens, bool trains) {
    if (share_.ep() == 1) return;
    const int64_t rows = tokens * experts.per_token;
    add(Axis::ep, Collective::all_to_all, rows * 4);
    add(Axis::ep, Collective::all_to_all, rows * model_.hidden * width(), 2);
    if (trains && lora_ && lora_->dropout > 0) add(Axis::ep, Collective::all_gather, tokens * share_.ep() * 8);
  }

  void count_mlp_backward(const spec::LayerSpec& layer, int64_t tokens, const CutAdapters& cut) {
    const spec::Experts* experts = spec::experts_of(layer.mlp);
    gather_rows(tokens, 2);
    if (experts != nullptr) exchange_rows(*experts, tokens, true);
    if (experts == nullptr) {
      sum_residual(tokens);
      sum_low_rank(tokens, cut.down + cut.ups * (defers() ? 2 : 1));
    } else if (sliced()) {
      const int64_t rows = rows_of_one(*experts, tokens);
      sum(rows, model_.hidden, experts->own());
      sum_low_rank(rows, (cut.down + cut.expert_gate + cut.expert_up) * experts->own());
    } else {
      sum_residual(tokens);
      if (share_.tp() > 1)
        add(Axis::tp, Collective::all_reduce, tokens * experts->per_token * 4);  // of routing weights
    }
  }
  // `input`: whether the gradient of its input is needed.
  void count_attention_backward(const spec::LayerSpec& layer, int64_t tokens, bool input, const CutAdapters& cut) {
    const bool shared = layer.attention.kv_heads % share_.cp != 0;
    gather_rows(tokens, 2);
    if (share_.cp > 1) exchange(layer.attention, tokens, 3, shared ? 4 : 2, true);
    if (input) sum_residual(tokens);
    sum_low_rank(tokens, cut.attention_out + cut.projections * (defers() ? (input ? 2 : 1) : 1));
  }

  // Of context-parallel ranks: so many matrices of queries (or of results) and of keys or values where they exchange
  // heads; else keys and values, and in backward the sums of their gradients, in fp32 where they pass round a ring:
  // these also come home.
  void exchange(const spec::Attention& attention, int64_t tokens, int64_t queries, int64_t keys, bool backward) {
    if (share_.cp_comm_type == spec::CpCommType::p2p) {
      const int64_t elements = 2 * tokens * attention.key_width();
      add(Axis::cp, Collective::send, elements * width(), share_.cp - 1);
      if (backward) add(Axis::cp, Collective::send, elements * 4, share_.cp);
      return;
    }
    if (share_.cp_comm_type == spec::CpCommType::allgather) {
      const int64_t all = tokens * share_.cp * attention.key_width() * width();
      add(Axis::cp, Collective::all_gather, all, 2);
      if (backward) add(Axis::cp, Collective::reduce_scatter, all, 2);
      return;
    }
    const auto matrix = [&](int64_t heads) {
      const int64_t own = heads % share_.cp == 0 ? heads / share_.cp : 1;
      return tokens * share_.cp * own * attention.head_dim * width();
    };
    add(Axis::cp, Collective::all_to_all, matrix(attention.heads), queries);
    add(Axis::cp, Collective::all_to_all, matrix(attention.kv_heads), keys);
  }

  // Log-sum-exps and targets' logits of the ranks' parts of the vocabulary, and the gradient of the head's input, of
  // pieces of each accumulation unit.
  void count_loss(int64_t tokens) {
    if (share_.tp() == 1) return;
    gather_rows(tokens, 1);
    const int64_t sequences = tokens * share_.cp / settings_.sequence_length;
    const int64_t unit =
        gradient_unit(sequences, settings_, share_, host_visible_) * settings_.sequence_length / share_.sum_slices;
    const int64_t chunk = spec::loss_chunk(model_.vocab, host_visible_);
    const int64_t parts = sliced() ? share_.sum_slices : share_.tp();
    // Among all of the micro-batch's rows.
    for (const spec::Range& own :
         spec::context_rows(share_.cp_comm_type, data_rank() % share_.cp, share_.cp, tokens * share_.cp)) {
      for (int64_t begin = own.begin; begin < own.end;) {
        const int64_t end = std::min(own.end, begin / unit * unit + unit);
        for (; begin < end; begin = std::min(end, begin + chunk)) {
          const int64_t rows = std::min(chunk, end - begin);
          add(Axis::tp, Collective::all_gather, parts * 2 * rows * 4);
          sum(rows, model_.hidden);
          sum_low_rank(rows, adapters_of(-1).head * (defers() ? 2 : 1));
        }
      }
    }
  }

  void count_gradients() {
    const std::vector<BucketBytes> buckets = bucket_bytes(model_, lora_, settings_.activation, types_, share_);
    const auto has_tokens = [](int64_t tokens) { return tokens > 0; };
    const auto computed = static_cast<int64_t>(std::ranges::count_if(tokens_, has_tokens));
    const bool every = share_.divides_gradients();
    const int64_t times = every ? std::ssize(tokens_) : 1;
    for (const BucketBytes& bucket : buckets) {
      const int64_t partial_times = every ? computed : std::min<int64_t>(computed, 1);
      if (share_.tp() > 1 && !(sliced() && lora_)) {
        for (const size_t bytes : bucket.partial)
          add(Axis::tp, Collective::all_reduce, static_cast<int64_t>(bytes), partial_times);
      }
      for (const size_t bytes : bucket.copied)
        add(Axis::tp, Collective::all_gather, static_cast<int64_t>(bytes) * share_.tp(), partial_times);
      if (computed > 0) add(Axis::pp, Collective::all_reduce, static_cast<int64_t>(bucket.split));
      const int ranks = share_.ranks_of(bucket.divided);
      if (ranks * share_.replicas == 1) continue;
      const Collective how =
          share_.zero_stage() == 0 || ranks == 1 ? Collective::all_reduce : Collective::reduce_scatter;
      const bool once = bucket.divided && ranks == 1;
      add(ranks > 1 ? Axis::dp : Axis::replicas, how, static_cast<int64_t>(bucket.memory), once ? 1 : times);
      if (ranks > 1 && share_.replicas > 1)
        add(Axis::replicas, Collective::all_reduce, static_cast<int64_t>(bucket.section));
      if (share_.zero_stage() == 0 || ranks == 1 || (share_.gathers_weights() && !lora_)) continue;
      for (const size_t bytes : bucket.weights) add(Axis::dp, Collective::all_gather, static_cast<int64_t>(bytes));
    }
  }

  // The units of weights that a computation needs.
  std::vector<int> units_of(const spec::PipelineStep& step) const {
    const auto is_here = [&](const spec::ModelShard& shard) { return shard.stage == step.virtual_stage; };
    switch (step.action) {
      case PipelineAction::forward:
        return nn::forward_weight_units(model_, *std::ranges::find_if(share_.shards, is_here));
      case PipelineAction::backward:
      case PipelineAction::backward_input: {
        const spec::ModelShard& shard = *std::ranges::find_if(share_.shards, is_here);
        return nn::backward_weight_units(model_, shard, spec::backward_end(model_, shard, lowest_).lowest_layer);
      }
      default: return {};
    }
  }

  // Of weights that are gathered when they are used.
  void count_weights() {
    if (share_.zero_stage() < 3) return;
    std::vector<int> needed;
    for (const spec::PipelineStep& step : schedule_.ranks[static_cast<size_t>(share_.stage())]) {
      const std::vector<int> units = units_of(step);
      needed.insert(needed.end(), units.begin(), units.end());
    }
    for (const int unit : gathered_units(model_, needed, lora_.has_value())) {
      for (const size_t bytes : units_[static_cast<size_t>(unit)])
        add(Axis::dp, Collective::all_gather, static_cast<int64_t>(bytes));
    }
  }

  const spec::ModelSpec& model_;
  const std::optional<spec::LoraSpec>& lora_;
  const OptimizerDtypes& types_;
  const StepSettings& settings_;
  const ShardSpec& share_;
  std::span<const std::vector<size_t>> units_;
  bool host_visible_;
  int64_t lowest_ = 0;
  std::vector<int64_t> tokens_;  // of each micro-batch on this rank
  spec::PipelineSchedule schedule_;
  std::map<int64_t, CutAdapters> adapters_;  // by layer; -1: outside the blocks
  spec::Traffic traffic_;
};

}  // namespace

spec::Traffic step_traffic(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora,
                           const OptimizerDtypes& types, const StepSettings& settings, const ShardSpec& share,
                           std::span<const std::vector<size_t>> units, int64_t sequences, bool host_visible) {
  return Counter(model, lora, types, settings, share, units, sequences, host_visible).count();
}

}  // namespace ingot::train
