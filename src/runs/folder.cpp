#include "runs/folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "checkpoint/native.h"
#include "tensor/fp8.h"
#include "train/event_log.h"

namespace ingot::runs {

namespace fs = std::filesystem;

namespace {

// `newest`: the step of the newest checkpoint in the folder; absent when there is none.
void check_resume(const fs::path& path, Resume resume, const std::string& elsewhere, std::optional<int64_t> newest) {
  const bool is_here = path_exists(path / "events.jsonl"), has_checkpoint = newest || !elsewhere.empty();
  switch (resume) {
    case Resume::no:
      if (!is_here && !has_checkpoint) return;
      throw_hint(ErrorKind::usage,
                 has_checkpoint
                     ? "continue it with --resume, or give this run another name (name=...)"
                     : "it has no checkpoint: restart it with --resume=fresh, or give this run another name (name=...)",
                 "{}: a run already exists", is_here || newest ? path.string() : elsewhere);
    case Resume::yes:
      if (has_checkpoint) return;
      if (!is_here) throw_error(ErrorKind::not_found, "{}: there is no run to continue", path.string());
      throw_hint(ErrorKind::not_found, "--resume=fresh restarts the run from its first step",
                 "{}: there is no checkpoint to continue from", (path / "checkpoints").string());
    case Resume::fresh:
      if (!has_checkpoint) return;
      throw_hint(ErrorKind::usage, "continue it with --resume, or give this run another name (name=...)",
                 "{}: --resume=fresh needs a run without a checkpoint, but this one has {}", path.string(),
                 newest ? fmt::format("that of step {}", *newest) : "some in " + elsewhere);
    case Resume::automatic: return;
  }
}

std::optional<int64_t> newest_checkpoint(const fs::path& path) {
  const std::vector<int64_t> steps = checkpoint::list_checkpoints(path / "checkpoints");
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

}  // namespace

RunFolder::RunFolder(fs::path path, Resume resume, const std::string& elsewhere) : path_(std::move(path)) {
  check(path_, resume, elsewhere);
  const fs::path checkpoints = path_ / "checkpoints";
  make_folders(checkpoints);
  lock_.emplace(path_);
  checkpoint::remove_leftovers(checkpoints);
  check_resume(path_, resume, elsewhere, newest_checkpoint(path_));
}

void RunFolder::check(const fs::path& path, Resume resume, const std::string& elsewhere) {
  // The run writes here, so a path that the system refuses is an error of writing (5), not of reading (3).
  name_exists(path / "checkpoints");
  if (resume != Resume::no) train::require_known_events(path / "events.jsonl");
  // Whether the lock's holder still runs is determined when the lock is taken, and that error takes precedence.
  if (resume != Resume::no && path_exists(path / "lock")) return;
  const fs::path checkpoints = path / "checkpoints";
  const std::optional<int64_t> newest = newest_checkpoint(path);
  // Leftovers of a crash may contain a checkpoint that the next holder of the folder restores.
  if (!newest && path_exists(checkpoints) && !list_folder(checkpoints).empty()) return;
  check_resume(path, resume, elsewhere, newest);
}

void RunFolder::require_lock() const {
  if (lock_->held()) return;
  throw_hint(ErrorKind::unavailable,
             "only one of the two processes may continue: see log.txt, and give the other run another name",
             "{}: another process has taken the lock of this run folder: this process was considered dead, or its lock "
             "file was removed",
             path_.string());
}

void RunFolder::write_recipe(const std::string& resolved) const { write_file(path_ / "recipe.yaml", resolved); }

namespace {

// The bytes of a parameter's beginning and end that the fingerprint reads.
struct Sample {
  std::string bytes;
  std::string known;  // of each byte whether it is here: 0 or 1
};

// `kept`: the bytes of the parameter that are here; null: all.
Sample sample_of(const spec::HeldParameter& held, const Shape& whole, const Parameter& parameter,
                 const checkpoint::KeptBytes* kept, Device& device) {
  constexpr int64_t most = 4096;
  const bool matrix = static_cast<bool>(parameter.matrix);
  // Bytes of so many elements of a row.
  const auto bytes_of = [&](int64_t elements) {
    return static_cast<int64_t>(matrix ? row_bytes(parameter.matrix.storage, elements)
                                       : static_cast<size_t>(elements) * size_of(DType::f32));
  };
  const int64_t width = bytes_of(matrix ? whole[1] : 1), all = whole[0] * width, part = std::min(most, all);
  const spec::Range& columns = held.slice.columns;
  const int64_t own_width = bytes_of(columns.count());
  spec::Slice slice = held.slice;
  slice.columns = {own_width == width ? 0 : bytes_of(columns.begin),
                   own_width == width ? width : bytes_of(columns.end)};
  const auto* data = static_cast<const std::byte*>(matrix ? parameter.matrix.data : parameter.vector.data);
  spec::Range here{0, held.slice.num_rows() * own_width};
  if (kept != nullptr) {
    data = kept->data;
    here = kept->bytes;
  }
  Sample sample{std::string(static_cast<size_t>(2 * part), '\0'), std::string(static_cast<size_t>(2 * part), '\0')};
  // Bytes [first, first + count) of the whole parameter are bytes [at, at + count) here.
  const auto add = [&](int64_t first, int64_t count, int64_t at) {
    for (const auto& [window, place] : {std::pair(spec::Range{0, part}, int64_t{0}), {{all - part, all}, part}}) {
      const int64_t from = std::max({first, window.begin, first + here.begin - at});
      const int64_t to = std::min({first + count, window.end, first + here.end - at});
      if (from >= to) continue;
      const auto begin = static_cast<size_t>(place + from - window.begin), bytes = static_cast<size_t>(to - from);
      device.copy_to_host(sample.bytes.data() + begin, data + (at + from - first - here.begin), bytes);
      std::fill_n(sample.known.begin() + static_cast<int64_t>(begin), bytes, '\1');
    }
  };
  if (!matrix || !is_fp8(parameter.matrix.storage) || own_width == width) {
    spec::for_runs(slice, width, add);
    return sample;
  }
  // Part of a row in fp8: its codes, and the row's scale at the end (tensor/fp8.h).
  constexpr int64_t scale = fp8_row_bytes(0);
  int64_t at = 0;
  for (const spec::Range& rows : held.slice.rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row, at += own_width) {
      add(row * width + columns.begin, columns.count(), at);
      add((row + 1) * width - scale, scale, at + own_width - scale);
    }
  }
  return sample;
}

}  // namespace

std::string weights_fingerprint(const spec::ModelSpec& model, std::span<const spec::ModelShard> shards,
                                const WeightSet& weights, Device& device, const comm::Group& ranks,
                                std::span<const checkpoint::KeptBytes> kept) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  const std::vector<spec::HeldParameter> held = spec::held_parameters(model, shards);
  auto next = held.begin();
  Sha256 digest;
  for (size_t i = 0; i < table.size(); ++i) {
    Sample own;
    if (next != held.end() && next->whole == i)
      own = sample_of(*next++, Shape(table[i].shape), weights.parameters[i], kept.empty() ? nullptr : &kept[i], device);
    if (ranks.size() == 1) {
      digest.update(std::as_bytes(std::span(own.bytes)));
      continue;
    }
    std::string whole;
    for (const std::string& text : ranks.gather(own.bytes + own.known)) {
      const size_t half = text.size() / 2;
      whole.resize(std::max(whole.size(), half));
      for (size_t at = 0; at < half; ++at) {
        if (text[half + at] != 0) whole[at] = text[at];
      }
    }
    digest.update(std::as_bytes(std::span(whole)));
  }
  return digest.hex();
}

namespace {

// The settings that determine the order of a StreamingDataset run, besides its data.
nlohmann::ordered_json streaming_identity(const train::DataRecipe& data) {
  const train::StreamingRecipe recipe = data.streaming.value_or(train::StreamingRecipe{});
  const data::StreamingSettings s = recipe.settings();
  nlohmann::ordered_json weights = nlohmann::ordered_json::array();
  for (const train::SourceRecipe& source : data.train.values) weights.push_back(source.weight.value_or(1));
  nlohmann::ordered_json identity = {{"shuffle", s.shuffle},
                                     {"shuffle_algo", data::name(s.algorithm)},
                                     {"shuffle_seed", s.seed},
                                     {"shuffle_block_size", s.block_size.value_or(0)},
                                     {"num_canonical_nodes", s.canonical_nodes.value_or(0)},
                                     {"sampling_method", data::name(s.sampling)},
                                     {"sampling_granularity", s.granularity},
                                     {"epoch_size", s.epoch_size.value_or(0)},
                                     {"weights", std::move(weights)}};
  // Omitted for default values, for compatibility with checkpoints that lack these keys.
  if (recipe.weights != train::StreamingWeights::repeat) identity["weights_are"] = static_cast<int>(recipe.weights);
  if (recipe.cluster().num_ranks() > 1) identity["cluster"] = {recipe.nodes, recipe.ranks};
  return identity;
}

}  // namespace

std::string run_identity(const RunPlan& plan, const std::string& data_hash, const std::string& base) {
  const spec::ModelSpec& m = plan.model;
  const spec::Attention& attention = m.layers.front().attention;
  nlohmann::ordered_json identity = {{"model",
                                      {{"family", m.family},
                                       {"vocab", m.vocab},
                                       {"hidden", m.hidden},
                                       {"layers", m.num_layers()},
                                       {"heads", attention.heads},
                                       {"kv_heads", attention.kv_heads},
                                       {"head_dim", attention.head_dim},
                                       {"ffn", spec::dense_of(m.layers.front().mlp).features},
                                       {"norm_epsilon", m.norm_epsilon},
                                       {"rope_theta", attention.rope.value_or(spec::Rope{}).theta},
                                       {"tied_head", m.tied_head}}},
                                     {"base", base},
                                     {"data", data_hash},
                                     {"data_seed", plan.recipe.data.seed},
                                     {"seed", plan.recipe.seed},
                                     {"global_batch", plan.recipe.batch.global},
                                     {"determinism_unit", plan.recipe.determinism_unit},
                                     {"precision", train::name(plan.recipe.precision)}};
  // Omitted when all layers agree, for compatibility with checkpoints that lack these keys.
  nlohmann::ordered_json rotary = nlohmann::ordered_json::array(), experts = nlohmann::ordered_json::array();
  for (const spec::LayerSpec& layer : m.layers) {
    rotary.push_back(layer.attention.rope.has_value());
    experts.push_back(spec::experts_of(layer.mlp) != nullptr);
  }
  const auto differ = [](const nlohmann::ordered_json& values) {
    return std::any_of(values.begin(), values.end(), [&](const auto& value) { return value != values.front(); });
  };
  if (differ(rotary)) identity["model"]["rotary_layers"] = rotary;
  if (differ(experts)) identity["model"]["expert_layers"] = experts;
  // Omitted for adamw, for the same reason, and for fp32 and bf16 states, which the dtypes of a checkpoint's tensors
  // distinguish.
  if (plan.recipe.optimizer.name != train::OptimizerName::adamw)
    identity["optimizer"] = name(plan.recipe.optimizer.name);
  if (plan.recipe.optimizer.state_dtype == train::StateType::int8) identity["optimizer_state"] = "int8";
  if (plan.optimizer_types.fixed_point_sums) identity["determinism"] = "bitwise";
  if (plan.share.sum_slices > 1) identity["units"] = plan.share.sum_slices;
  if (plan.step.fp8) identity["fp8_gradients"] = name(plan.step.fp8_gradients);
  if (plan.recipe.data.order == train::Order::streaming) identity["order"] = streaming_identity(plan.recipe.data);
  if (plan.lora) {
    identity["adapter"] = {{"rank", plan.lora->rank},
                           {"alpha", plan.lora->alpha},
                           {"dropout", plan.lora->dropout},
                           {"rslora", plan.lora->rslora},
                           {"targets", plan.lora->targets}};
  }
  return identity.dump();
}

}  // namespace ingot::runs
